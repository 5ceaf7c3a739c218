"""The limit of a queue whose jobs are hashes with indexes: a loop that calls a script per job."""

from __future__ import annotations

import redis
from inside import HOST, PORT, mark

TITLE = "limit: bare script"
REQUIREMENTS: list[str] = []  # it is measured with the Python that runs the benchmark
PACKAGE = "redis"
ADDING = "a script that writes a hash of 5 fields, 3 index sets and a list"
WORKERS = {"default": "a script that ends one job (hash, index sets, lease, list) and claims the next"}

client = redis.Redis(HOST, PORT)

add_script = client.register_script("""
local pk = redis.call('INCR', 'max_pk')
redis.call('HSET', 'job:' .. pk, 'identifier', ARGV[1], 'status', 'w', 'priority', '0', 'queued', '1', 'added', ARGV[2])
redis.call('SADD', 'collection', pk)
redis.call('SADD', 'status:w', pk)
redis.call('SADD', 'identifier:' .. ARGV[1], pk)
redis.call('RPUSH', 'waiting', pk)
redis.call('LPUSH', 'bell', pk)
redis.call('LTRIM', 'bell', 0, 0)
return pk
""")

next_script = client.register_script("""
local now = redis.call('TIME')[1]
if ARGV[1] ~= '' and redis.call('ZREM', 'running', ARGV[1]) == 1 then
  redis.call('HSET', 'job:' .. ARGV[1], 'status', 's', 'end', now)
  redis.call('HDEL', 'job:' .. ARGV[1], 'queued')
  redis.call('SMOVE', 'status:r', 'status:s', ARGV[1])
  redis.call('RPUSH', 'success', ARGV[1])
end
local pk = redis.call('LPOP', 'waiting')
if not pk then
  return false
end
redis.call('HSET', 'job:' .. pk, 'status', 'r', 'start', now)
redis.call('SMOVE', 'status:w', 'status:r', pk)
redis.call('ZADD', 'running', now + 60, pk)
return {pk, redis.call('HGET', 'job:' .. pk, 'identifier')}
""")


def setup() -> None:
    client.ping()


def add(number: int) -> None:
    add_script(args=[number, "2026-01-01 00:00:00.000000"])


def work(variant: str) -> None:
    claimed = None
    while True:
        while claimed := next_script(args=[claimed[0] if claimed else b""]):
            mark(int(claimed[1]))
        client.blpop(["bell"])
