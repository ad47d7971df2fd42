#!/bin/sh
# Run each night: append yesterday's jobs to the history; after a Sunday, write the digest of the week.
#   nightly.sh [DAY]     DAY such as 2026-11-22; yesterday by default. To make up for a failed night, give its day.
# In crontab:  15 0 * * *  TRACEKIT_FOLDER=/srv/tracekit /srv/tracekit/nightly.sh
set -eu

folder=${TRACEKIT_FOLDER:?set it to the folder of the history}
timezone=${TRACEKIT_TIMEZONE:-UTC}     # time zone of sacct's times, that of this machine
by=${TRACEKIT_BY:-user}                # user or account
day=${1:-$(date -d yesterday +%F)}

mkdir -p "$folder/dumps" "$folder/digests"
exec 9> "$folder/lock"
flock --nonblock 9 || { echo "nightly.sh: another run is at work in $folder" >&2; exit 1; }

# A dump gets its final name only when it is complete.
dump="$folder/dumps/sacct-$day.txt"
sacct --parsable2 --allusers --duplicates --starttime "$day" --endtime "$day"T23:59:59 \
  --format=JobID,JobIDRaw,Cluster,Submit,Eligible,Start,End,State,Elapsed,Timelimit,AllocTRES,ReqTRES,NNodes,NodeList,Account,Partition,QOS,User,Priority \
  > "$dump.part"
mv "$dump.part" "$dump"
tracekit ingest "$dump" -o "$folder/history" --append --format slurm --option timezone="$timezone"

if [ "$(date -d "$day" +%u)" = 7 ]; then
  week=$(date -d "$day" +%G-W%V)
  tracekit digest "$folder/history" --week "$week" --by "$by" -o "$folder/digests/$week" --force
fi
