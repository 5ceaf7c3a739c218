-- verb: list presences
-- what: returns who is there. It writes nothing: it works while Redis refuses to write
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model
--   kind    of those to return; or none for all
-- reply
--   done   {now: seconds since the epoch, records: [pk, when its presence ends unless it is kept up: the same, [field,
--          value…]]…}

--@include records
--@include bounded

local model, records = model_of(request.model), {}
local moment = score(now())

-- A key of a wrong type counts as empty.
local found = redis.pcall('ZRANGEBYSCORE', KEYS[1], '(' .. moment, '+inf', 'WITHSCORES')
for i = 1, #found, 2 do
  local fields = redis.pcall('HGETALL', hash_key(model, found[i]))
  local is_wanted = not request.kind or redis.pcall('HGET', hash_key(model, found[i]), 'kind') == request.kind
  for at, text in ipairs(fields) do fields[at] = bounded(text, LONGEST_IN_LIST * 16) end
  if not fields.err and #fields > 0 and is_wanted then
    records[#records + 1] = {found[i], found[i + 1], fields}
  end
end
return answer('done', {now = moment, records = records})
