-- Quarantine: what becomes of what no worker can do anything with, and what a failure was.

-- Keeps an ident that no worker can do anything with where one can look at it: the last thousand of each queue.
local function set_aside(base, ident)
  redis.call('RPUSH', base .. ':_quarantine', ident)
  redis.call('LTRIM', base .. ':_quarantine', -1000, -1)
end

local function text_of_error(failure)
  return type(failure) == 'table' and failure.err or tostring(failure)
end

local function is_broken(key)
  return redis.call('TYPE', key).ok ~= 'hash' and redis.call('EXISTS', key) == 1
end
