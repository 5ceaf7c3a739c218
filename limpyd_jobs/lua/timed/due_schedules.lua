-- verb: due schedules
-- what: tells which are due
-- KEYS[1]  sorted set of the active schedules, by when they are due
-- request
--   model
--   limit   how many to return at most
--   part    which ones to return if more are due: from 0, the first ones, to 1, the last ones
-- reply
--   done   {moment: now, in seconds; upcoming: the next time after it, if any; number: how many are due;
--          schedules: [pk, [field, value…]]…}
--
-- Schedules that were deleted lose their place. A hash of a wrong type counts as one without fields.

--@include clock
--@include records

local model, present, limit = model_of(request.model), score(now()), tonumber(request.limit)
local _, upcoming = unpack(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. present, '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
local number, found = redis.call('ZCOUNT', KEYS[1], '-inf', present), {}
local first = math.floor(math.max(number - limit, 0) * tonumber(request.part))
for _, pk in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', present, 'LIMIT', first, limit)) do
  if is_gone(model, pk) then
    redis.call('ZREM', KEYS[1], pk)
  else
    local fields = redis.pcall('HGETALL', hash_key(model, pk))
    found[#found + 1] = {pk, fields.err and {} or fields}
  end
end
return answer('done', {moment = present, upcoming = upcoming, number = number, schedules = found})
