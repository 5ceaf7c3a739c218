-- Signals: what ends the wait of an idle worker, for it to look again which queues there are, and when jobs are due.

-- There is one list for each name of queues, in the `BLPOP` of all workers of that name. A token in it ends one of these
-- waits. If what that worker finds is new to it, it passes the signal on. There is one token at the most, none if no
-- worker waits, and an unheard one is gone after seconds: who begins to wait has looked before.
local function signal(key)
  local waiting = redis.pcall('ZCARD', string.match(key, '^(.-):signal:') .. ':blocked')
  if type(waiting) == 'number' and waiting > 0 and redis.pcall('LLEN', key) == 0 then
    redis.pcall('RPUSH', key, '1')
    redis.pcall('PEXPIRE', key, 10000)
  end
end
