-- verb: due schedules
-- what: tells which are due
-- KEYS[1]  sorted set of the active schedules, by when they are due
-- request
--   model
--   limit   how many to return at most
-- reply
--   done   {moment: now, in seconds; upcoming: the next time after it, if any; schedules: [pk, [field, value…]]…}
--
-- Schedules that were deleted lose their place. A hash of a wrong type counts as one without fields.

--@include clock
--@include records

local model, present = model_of(request.model), score(now())
local upcoming = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. present, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local found = {}
for _, pk in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', present, 'LIMIT', 0, request.limit)) do
  if is_gone(model, pk) then
    redis.call('ZREM', KEYS[1], pk)
  else
    local fields = redis.pcall('HGETALL', hash_key(model, pk))
    found[#found + 1] = {pk, fields.err and {} or fields}
  end
end
return answer('done', {moment = present, upcoming = upcoming[2], schedules = found})
