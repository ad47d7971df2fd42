/* The bound of benchmarks/replay.py: FIFO (the first job that cannot start ends the pass) and SRTF, straight C.
 *
 *     replay_bound INPUT OUTPUT fifo|srtf
 *
 * INPUT, int64: jobs, nodes, domains; then submit[ms], work[ms], gpus, domain of each job by submission; then GPUs and
 * domain of each node, nodes of a domain side by side, 8 GPUs at most. OUTPUT: the end of each job, int64 [ms].
 * Rules as in the engine: a gang of at most 8 goes to the fullest node that has room, lowest index first; a larger one
 * takes free nodes, and the emptiest other for a remainder. SRTF passes over what does not fit; a waiting job evicts
 * those with more left, most first, until it fits; those who hold nothing on the nodes it takes go on, the others go back to where they were
 * if there is still room.
 * Prints the seconds of the run, reading and writing left out.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int64_t i64;
typedef uint64_t u64;
#define CLASSES 65

static i64 n, nodes, domains;
static i64 *submit, *work, *gpus, *domain_of, *size, *home, *end;
static int *free_gpus, *local, *low, *words, *bits_at, *free_in;
static u64 *bits;

/* what a job holds: a chain of (node, gpus) */
static int *take_node, *take_gpus, *take_next, take_free, *held;

static void enter(int v) {
    int d = (int)home[v];
    bits[bits_at[d] + free_gpus[v] * words[d] + (local[v] >> 6)] |= 1ull << (local[v] & 63);
}
static void leave(int v) {
    int d = (int)home[v];
    bits[bits_at[d] + free_gpus[v] * words[d] + (local[v] >> 6)] &= ~(1ull << (local[v] & 63));
}
static inline int first(int d, int f) {
    u64 *row = bits + bits_at[d] + f * words[d];
    for (int w = 0; w < words[d]; w++)
        if (row[w]) return low[d] + w * 64 + __builtin_ctzll(row[w]);
    return -1;
}
static inline void change(int v, int by) {
    leave(v);
    free_gpus[v] += by;
    free_in[home[v]] += by;
    enter(v);
}
static void hold(int j, int v, int g) {
    int t = take_free;
    take_free = take_next[t];
    take_node[t] = v;
    take_gpus[t] = g;
    take_next[t] = held[j];
    held[j] = t;
    change(v, -g);
}
static void chain(int j, int sign) {
    for (int t = held[j]; t >= 0; t = take_next[t]) change(take_node[t], sign * take_gpus[t]);
}
static void forget(int j) {
    int t = held[j];
    while (t >= 0) {
        int next = take_next[t];
        take_next[t] = take_free;
        take_free = t;
        t = next;
    }
    held[j] = -1;
}
static int place(int j) {
    int d = (int)domain_of[j], g = (int)gpus[j];
    if (free_in[d] < g) return 0;
    if (g <= 8) {
        for (int f = g; f <= 8; f++) {
            int v = first(d, f);
            if (v >= 0) { hold(j, v, g); return 1; }
        }
        return 0;
    }
    int wanted = g / 8, rest = g % 8, found = 0;
    u64 *row = bits + bits_at[d] + 8 * words[d];
    for (int w = 0; w < words[d]; w++) found += __builtin_popcountll(row[w]);
    if (found < wanted) return 0;
    if (rest && found == wanted) {
        int other = 0;
        for (int f = 7; f >= rest; f--) other |= first(d, f) >= 0;
        if (!other) return 0;
    }
    for (int k = 0; k < wanted; k++) hold(j, first(d, 8), 8);
    for (int f = 8; rest && f >= rest; f--) {
        int v = first(d, f);
        if (v >= 0) { hold(j, v, rest); break; }
    }
    return 1;
}

/* a heap of (key, job), smallest first, that knows where each job is */
typedef struct { i64 key; int job; } entry;
typedef struct { entry *a; int size; int *at; } heap;
static inline int before(entry x, entry y) { return x.key < y.key || (x.key == y.key && x.job < y.job); }
static void rise(heap *h, int p, entry e) {
    while (p) {
        int q = (p - 1) / 2;
        if (!before(e, h->a[q])) break;
        h->a[p] = h->a[q];
        h->at[h->a[p].job] = p;
        p = q;
    }
    h->a[p] = e;
    h->at[e.job] = p;
}
static void sink(heap *h, int p, entry e) {
    for (;;) {
        int c = 2 * p + 1;
        if (c >= h->size) break;
        if (c + 1 < h->size && before(h->a[c + 1], h->a[c])) c++;
        if (before(e, h->a[c])) break;
        h->a[p] = h->a[c];
        h->at[h->a[p].job] = p;
        p = c;
    }
    h->a[p] = e;
    h->at[e.job] = p;
}
static void push(heap *h, i64 key, int job) { entry e = {key, job}; rise(h, h->size++, e); }
static void take_out(heap *h, int job) {
    int p = h->at[job];
    h->at[job] = -1;
    entry last = h->a[--h->size];
    if (p == h->size) return;
    if (p && before(last, h->a[(p - 1) / 2])) rise(h, p, last);
    else sink(h, p, last);
}

static heap events;
static char *touched;
static int *touched_list, touched_count;
static void touch(int d) {
    if (!touched[d]) { touched[d] = 1; touched_list[touched_count++] = d; }
}

static void fifo(void) {
    i64 *head = calloc(domains, 8), *tail = calloc(domains, 8), *base = calloc(domains + 1, 8);
    int *queue = malloc(n * sizeof(int));
    for (i64 j = 0; j < n; j++) base[domain_of[j] + 1]++;
    for (i64 d = 0; d < domains; d++) base[d + 1] += base[d];
    for (i64 d = 0; d < domains; d++) head[d] = tail[d] = base[d];
    i64 next = 0;
    while (next < n || events.size) {
        i64 now = events.size ? events.a[0].key : INT64_MAX;
        if (next < n && submit[next] < now) now = submit[next];
        while (events.size && events.a[0].key == now) {
            int j = events.a[0].job;
            take_out(&events, j);
            end[j] = now;
            chain(j, 1);
            forget(j);
            touch((int)domain_of[j]);
        }
        for (; next < n && submit[next] == now; next++) {
            int d = (int)domain_of[next];
            queue[tail[d]++] = (int)next;
            touch(d);
        }
        for (int i = 0; i < touched_count; i++) {
            int d = touched_list[i];
            touched[d] = 0;
            while (head[d] < tail[d] && place(queue[head[d]])) {
                int j = queue[head[d]++];
                push(&events, now + work[j], j);
            }
        }
        touched_count = 0;
    }
}

static void srtf(void) {
    heap *waiting = calloc(domains * CLASSES, sizeof(heap)), *ranks = calloc(domains, sizeof(heap));
    int *wait_at = malloc(n * 4), *rank_at = malloc(n * 4), *classes = malloc(n * 4), *victims = malloc(n * 4), *out = malloc(n * 4);
    int class_of[CLASSES], count = 0, sizes[CLASSES];
    memset(class_of, -1, sizeof class_of);
    for (i64 j = 0; j < n; j++) if (class_of[gpus[j]] < 0) class_of[gpus[j]] = 0;
    for (int g = 0; g < CLASSES; g++) if (class_of[g] == 0) { class_of[g] = count; sizes[count++] = g; }
    i64 *room = calloc(domains * CLASSES, 8), *left = malloc(n * 8);
    for (i64 j = 0; j < n; j++) {
        classes[j] = class_of[gpus[j]];
        room[domain_of[j] * CLASSES + classes[j]]++;
        left[j] = work[j];
    }
    for (i64 k = 0; k < domains * CLASSES; k++) { waiting[k].a = malloc((room[k] + 1) * sizeof(entry)); waiting[k].at = wait_at; }
    i64 *cap = calloc(domains, 8);
    for (i64 v = 0; v < nodes; v++) cap[home[v]] += size[v];
    for (i64 d = 0; d < domains; d++) { ranks[d].a = malloc((cap[d] + 1) * sizeof(entry)); ranks[d].at = rank_at; }
    char *blocked = calloc(domains * CLASSES, 1), *freed = calloc(domains, 1), *evicted = calloc(n, 1);
    i64 next = 0;
    while (next < n || events.size) {
        i64 now = events.size ? events.a[0].key : INT64_MAX;
        if (next < n && submit[next] < now) now = submit[next];
        while (events.size && events.a[0].key == now) {
            int j = events.a[0].job;
            int d = (int)domain_of[j];
            take_out(&events, j);
            take_out(&ranks[d], (int)(n - 1 - j));
            end[j] = now;
            chain(j, 1);
            forget(j);
            freed[d] = 1;
            touch(d);
        }
        for (; next < n && submit[next] == now; next++) {
            int d = (int)domain_of[next];
            heap *q = &waiting[d * CLASSES + classes[next]];
            push(q, left[next], (int)next);
            if (wait_at[next] == 0) blocked[d * CLASSES + classes[next]] = 0;
            touch(d);
        }
        for (int i = 0; i < touched_count; i++) {
            int d = touched_list[i], outs = 0;
            touched[d] = 0;
            heap *qs = waiting + d * CLASSES, *r = &ranks[d];
            char *stuck = blocked + d * CLASSES;
            if (freed[d]) memset(stuck, 0, count);
            freed[d] = 0;
            for (;;) {
                int best = -1;
                for (int c = 0; c < count; c++)
                    if (qs[c].size && !stuck[c] && (best < 0 || before(qs[c].a[0], qs[best].a[0]))) best = c;
                if (best < 0) break;
                entry e = qs[best].a[0];
                int j = e.job, placed = 0;
                if (evicted[j]) {
                    placed = 1;
                    for (int t = held[j]; t >= 0; t = take_next[t]) if (free_gpus[take_node[t]] < take_gpus[t]) { placed = 0; break; }
                    if (placed) chain(j, -1);
                    else {
                        int old = held[j];
                        held[j] = -1;
                        placed = place(j);
                        int fresh = held[j];
                        held[j] = old;
                        if (placed) { forget(j); held[j] = fresh; }
                    }
                } else placed = place(j);
                if (!placed && r->size) {
                    int enough = free_in[d];
                    for (int k = 0; k < r->size && enough < gpus[j]; k++)
                        if (-r->a[k].key > e.key + now) enough += (int)gpus[n - 1 - r->a[k].job];
                    int victims_count = 0;
                    if (enough >= gpus[j])
                        while (!placed && r->size && -r->a[0].key > e.key + now) {
                            int v = (int)(n - 1 - r->a[0].job);
                            take_out(r, r->a[0].job);
                            chain(v, 1);
                            victims[victims_count++] = v;
                            if (evicted[j]) {
                                placed = 1;
                                for (int t = held[j]; t >= 0; t = take_next[t]) if (free_gpus[take_node[t]] < take_gpus[t]) { placed = 0; break; }
                                if (placed) chain(j, -1);
                                else {
                                    int old = held[j];
                                    held[j] = -1;
                                    placed = place(j);
                                    int fresh = held[j];
                                    held[j] = old;
                                    if (placed) { forget(j); held[j] = fresh; }
                                }
                            } else placed = place(j);
                        }
                    int gone = outs;
                    for (int k = 0; k < victims_count; k++) {
                        int v = victims[k], meets = 0;
                        for (int t = held[v]; placed && !meets && t >= 0; t = take_next[t])
                            for (int u = held[j]; u >= 0; u = take_next[u]) meets |= take_node[t] == take_node[u];
                        if (meets) out[outs++] = v;
                        else { chain(v, -1); push(r, -events.a[events.at[v]].key, (int)(n - 1 - v)); }
                    }
                    for (int k = gone; k < outs; k++) {
                        int v = out[k];
                        left[v] = events.a[events.at[v]].key - now;
                        take_out(&events, v);
                        evicted[v] = 1;
                        push(&qs[classes[v]], left[v], v);
                        if (wait_at[v] == 0) stuck[classes[v]] = 0;
                    }
                    if (placed) {
                        for (int c = 0; c < count; c++) if (qs[c].size && stuck[c] && qs[c].a[0].key >= e.key) stuck[c] = 0;
                    }
                }
                if (!placed) { stuck[best] = 1; continue; }
                take_out(&qs[best], j);
                evicted[j] = 0;
                push(&events, now + left[j], j);
                push(r, -(now + left[j]), (int)(n - 1 - j));
            }
            for (int k = 0; k < outs; k++) if (evicted[out[k]]) { evicted[out[k]] = 0; forget(out[k]); }
        }
        touched_count = 0;
    }
    (void)sizes;
}

static i64 *column(FILE *f, i64 count) {
    i64 *a = malloc((count + 1) * 8);
    if (!a || fread(a, 8, count, f) != (size_t)count) exit(2);
    return a;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    FILE *f = fopen(argv[1], "rb");
    if (!f) return 2;
    i64 *sizes = column(f, 3);
    n = sizes[0]; nodes = sizes[1]; domains = sizes[2];
    submit = column(f, n); work = column(f, n); gpus = column(f, n); domain_of = column(f, n);
    size = column(f, nodes); home = column(f, nodes);
    fclose(f);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    end = malloc(n * 8);
    free_gpus = malloc(nodes * 4); local = malloc(nodes * 4);
    low = calloc(domains, 4); words = calloc(domains, 4); bits_at = calloc(domains, 4); free_in = calloc(domains, 4);
    i64 total = 0;
    int *members = calloc(domains, 4);
    for (i64 v = 0; v < nodes; v++) {
        if (!members[home[v]]) low[home[v]] = (int)v;
        local[v] = members[home[v]]++;
        free_gpus[v] = (int)size[v];
        free_in[home[v]] += (int)size[v];
        total += size[v];
    }
    int at = 0;
    for (i64 d = 0; d < domains; d++) { words[d] = (members[d] + 63) / 64; bits_at[d] = at; at += 9 * words[d]; }
    bits = calloc(at, 8);
    for (i64 v = 0; v < nodes; v++) enter((int)v);
    i64 takes = 2 * total + 1;
    take_node = malloc(takes * 4); take_gpus = malloc(takes * 4); take_next = malloc(takes * 4);
    for (i64 t = 0; t < takes; t++) take_next[t] = t + 1 < takes ? (int)t + 1 : -1;
    held = malloc(n * 4);
    memset(held, -1, n * 4);
    events.a = malloc((total + 1) * sizeof(entry));
    events.at = malloc(n * 4);
    touched = calloc(domains, 1);
    touched_list = malloc(domains * 4);
    if (strcmp(argv[3], "fifo") == 0) fifo(); else srtf();
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.4f\n", (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    f = fopen(argv[2], "wb");
    if (!f || fwrite(end, 8, n, f) != (size_t)n) return 2;
    return fclose(f) != 0;
}
