"""Why a machine was taken out of service: one word for what people and programs write."""

from __future__ import annotations

import re

_RULES = (
    # XIDs first: their numbers say more than the words around them (docs.nvidia.com/deploy/xid-errors).
    ("gpu memory", r"\bxid\D{0,3}(48|63|64|92|94|95)\b"),
    ("gpu lost", r"\bxid\D{0,3}79\b|off the bus|gpus? (is |was |are |were )?(lost|missing|gone)|lost gpus?\b"),
    # slurm.schedmd.com/slurm.conf.html: what slurmd reports when fewer GPUs answer than are configured.
    ("gpu lost", r"missing gpus?\b|gres/gpu count (reported )?(too low|lower)|gpu count (mismatch|low)"),
    ("nvlink", r"\bxid\D{0,3}74\b|nv-?link|nv-?switch|fabric ?manager"),
    ("gpu memory", r"\becc\b.*\bgpu|\bgpu.*\becc\b|double.?bit|\bdbe\b|row remap|retired pages?|\bhbm\b|gpu mem"),
    ("xid", r"\bxid\b"),
    ("network cable", r"\bcables?\b|link flap|transceiver|\boptics?\b|\bsfp\b|\bqsfp"),
    ("nic", r"\bnic\b|\bhca\b|infiniband|\bib[0-9_ ]|\bib\b|\bmlx\d|connectx|\broce\b|ethernet|\beth\d|network card"),
    ("power", r"\bpower\b|\bpsu\b|\bpdu\b|\bups\b|outage"),
    ("fan", r"\bfans?\b|overheat|\bthermal|temperature|cooling|too hot"),
    (
        "file system",
        r"file ?system|lustre|\bgpfs\b|\bnfs\b|beegfs|\bceph|\bmount|/scratch|disk (is )?full|no space left",
    ),
    ("maintenance", r"\bmaint|upgrad|\bupdat|firmware|\bbios\b|\bpatch|re-?imag|scheduled|planned|\breboot\b|swap out"),
    ("software", r"driver|\bcuda\b|prolog|epilog|kill task|slurmd|\bnvml\b|nvidia-smi|software|kernel module|daemon"),
    ("software", r"health ?check|\bnhc\b|duplicate jobid|config|batch job complete failure|docker|containerd|kubelet"),
    (
        "host",
        r"not responding|unexpected.*reboot|\bhost\b|\bcpus?\b|\bdimm|\bmce\b|machine check|motherboard|\bdisks?\b",
    ),
    (
        "host",
        r"kernel panic|\bcrash|\bhung\b|\bhang|low (real)?memory|low socket|\bram\b|\bmemory\b|\becc\b|\bbmc\b|ssd",
    ),
)
"""Patterns in the order in which they are tried, in any case of letters. Ours, but where a source stands beside it."""

_COMPILED = tuple((cause, re.compile(pattern, re.IGNORECASE)) for cause, pattern in _RULES)
_NOTHING = frozenset({"", "none", "(null)", "unknown", "n/a"})
_LOOKED_AT = 2_000

CAUSES = (*dict.fromkeys(cause for cause, _ in _RULES), "unknown")
"""Every word that can come out."""


def cause_of(text: str | None) -> str | None:
    """Return the cause that a reason names, 'unknown' where no rule fits, None where there is no reason."""
    if text is None or text.strip().lower() in _NOTHING:
        return None
    return next((cause for cause, rule in _COMPILED if rule.search(text[:_LOOKED_AT])), "unknown")
