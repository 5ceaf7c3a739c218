-- verb: list presences
-- what: returns who is there, and deletes the records of those who are not any more
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model
--   kind    of those to return; or none for all
-- reply
--   done   {records: [pk, when its presence ends unless it is kept up: seconds since the epoch, [field, value…]]…}

--@include leases

local model, records = model_of(request.model), {}
local moment = score(now())

-- A record that cannot be deleted is left to the check; so is a key of a wrong type, which counts as empty.
for _, pk in ipairs(redis.pcall('ZRANGEBYSCORE', KEYS[1], '-inf', moment, 'LIMIT', 0, 1000)) do
  pcall(delete_record, model, pk)
  redis.call('ZREM', KEYS[1], pk)
end
local found = redis.pcall('ZRANGEBYSCORE', KEYS[1], '(' .. moment, '+inf', 'WITHSCORES')
for i = 1, #found, 2 do
  local fields = redis.pcall('HGETALL', hash_key(model, found[i]))
  local is_wanted = not request.kind or redis.pcall('HGET', hash_key(model, found[i]), 'kind') == request.kind
  if not fields.err and #fields > 0 and is_wanted then
    records[#records + 1] = {found[i], found[i + 1], fields}
  end
end
return answer('done', {records = records})
