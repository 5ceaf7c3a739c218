-- Quarantine: keeps entries that no worker can run, and tells what a failure was.

-- Keeps an entry that no worker can run, so that people can look at it: the last thousand of each queue.
--@rarely
local function set_aside(base, ident)
  redis.call('RPUSH', base .. ':_quarantine', ident)
  redis.call('LTRIM', base .. ':_quarantine', -1000, -1)
end

--@rarely
local function text_of_error(failure)
  return type(failure) == 'table' and failure.err or tostring(failure)
end

-- Whether a write failed not because of the record, but because Redis accepts no writes now, or none of this user.
--@rarely
local function is_refused_by_redis(failure)
  local text = text_of_error(failure)
  for _, reason in ipairs({'MISCONF', 'NOREPLICAS', 'READONLY', 'OOM', 'NOPERM', 'ACL failure', "can't run this"}) do
    if string.find(text, reason, 1, true) then
      return true
    end
  end
end

--@rarely
local function is_broken(key)
  return redis.call('TYPE', key).ok ~= 'hash' and redis.call('EXISTS', key) == 1
end
