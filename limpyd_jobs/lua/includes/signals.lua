-- Signals: they end the wait of idle workers, which then look again whether there is a job, and when one is due.

--@include shared_key

local idle_workers = {}

-- How many workers wait. They are registered beside the queues, in a sorted set of their names, with the moment up to
-- which they have to give another sign.
local function count_idle_workers(key)
  if not idle_workers[key] then
    local number = redis.pcall('ZCARD', key)
    idle_workers[key] = type(number) == 'number' and number or 0
  end
  return idle_workers[key]
end

-- There is one list for each name of queues, in the `BLPOP` of all workers of that name. It has only tokens: each ends
-- one of these waits. There are no more tokens than workers that wait, and unused ones expire after seconds: a worker
-- that begins to wait has looked before.
--@rarely
local function notify(key, is_for_all)
  local idle = count_idle_workers(string.match(key, '^(.-):_signal:') .. ':idle_workers')
  local tokens = idle > 0 and redis.pcall('LLEN', key)
  if type(tokens) == 'number' and tokens < idle then
    for _ = 1, is_for_all and idle - tokens or 1 do redis.call('RPUSH', key, '1') end
    redis.call('PEXPIRE', key, 10000)
  end
end

-- The known names of queues, by the beginning of their keys.
local known_names = {}

-- Ends the wait of a worker, or of all, that may have something to do in the queue of some keys.
local function notify_worker(base, is_for_all)
  if count_idle_workers(shared_key(base, 'idle_workers')) == 0 then
    return
  end
  local name = known_names[base] or redis.pcall('HGET', base .. ':hash', 'name')
  if type(name) == 'string' then
    notify(shared_key(base, '_signal:' .. name), is_for_all)
  end
end
