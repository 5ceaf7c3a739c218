-- verb: put off
-- from: waiting
-- to: the same
-- what: a job whose class this worker cannot resolve goes back to its queue for a while
--
-- KEYS[1]  waiting list
-- ARGV[1]  ident
-- ARGV[2]  for how long: seconds
--
-- The number of places it was taken from.

--@include clock

local taken = redis.call('LREM', KEYS[1], 1, ARGV[1])
local queue = string.sub(KEYS[1], 1, -9)
redis.call('ZADD', queue .. ':delayed', score(now() + tonumber(ARGV[2]) * 1000000), ARGV[1])
return taken
