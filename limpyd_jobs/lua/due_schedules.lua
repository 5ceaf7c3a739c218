-- The schedules that are due. No transition of a job.
--
-- KEYS[1]  sorted set of the schedules that are active, by when they are due
-- ARGV[1]  schedule model
-- ARGV[2]  how many to return at most
--
-- {now in seconds, the next time after now in seconds or '', {pk, {field, value…}}…}
--
-- Those that were deleted lose their place. The fields of a hash of a wrong type are none.

--@include clock
--@include records

local model, present = model_of(ARGV[1]), score(now())
local upcoming = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. present, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local reply = {present, upcoming[2] or ''}
for _, pk in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', present, 'LIMIT', 0, ARGV[2])) do
  if is_gone(model, pk) then
    redis.call('ZREM', KEYS[1], pk)
  else
    local fields = redis.pcall('HGETALL', hash_key(model, pk))
    reply[#reply + 1] = {pk, fields.err and {} or fields}
  end
end
return reply
