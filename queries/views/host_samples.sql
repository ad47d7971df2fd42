-- title: CPU and memory use of the machines, one row per value
-- tables: host_utilization
-- column time: UTC | start of the sampling interval
-- column node_id: text | the machine
-- column resource: text | cpu or memory
-- column use_pct: percent | use of the resource
-- rule:
-- CPU use is every known cpu_pct. Memory use is 100 * used / total if both are known and the total is above 0.
SELECT time, node_id, 'cpu' AS resource, cpu_pct AS use_pct
FROM host_utilization
WHERE cpu_pct IS NOT NULL
UNION ALL
SELECT time, node_id, 'memory', 100 * memory_used_gib / memory_total_gib
FROM host_utilization
WHERE memory_used_gib IS NOT NULL AND memory_total_gib > 0
