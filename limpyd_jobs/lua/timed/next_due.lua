-- verb: next due
-- what: tells when the next timed record is due, once the leases of an owner are given back
-- KEYS[1]  range index of the field that says when a record is due
-- KEYS[2]  sorted set of the leases
-- request
--   model
--   field      that says when a record is due
--   owner      whose leases are given back
--   returned   JSON, a list: their pks, or none
--   skipped    JSON, a list: the pks to pass over, or none
-- reply
--   done   {due: when the first record that is not leased is due, if any: seconds since the epoch; lapse: in how many
--          seconds the first lease ends, if there is one}

--@include leases

local model = model_of(request.model)

for _, pk in ipairs(cjson.decode(request.returned or '[]')) do
  end_lease(KEYS[2], model, pk, request.owner)
end
-- An entry of the index that is not a due record is never due, as for lease_due.
local first = first_of_due(KEYS[1], '+inf', request.skipped, function(pk)
  local at, holder = unpack(redis.pcall('HMGET', hash_key(model, pk), request.field, 'leased_by'))
  if not at or (tonumber(at) or 0) > tonumber(redis.call('ZSCORE', KEYS[1], pk)) then return false end
  for _, prefix in ipairs(holder and model.indexes.leased_by or NOTHING) do
    if type(redis.pcall('SCARD', prefix .. holder)) ~= 'number' then return false end  -- a key of another program
  end
  return not is_leased(KEYS[2], pk)
end)
local due = first and redis.call('ZSCORE', KEYS[1], first)
local lease = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. score(now()), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
return answer('done', {due = due, lapse = lease and score(tonumber(lease) * 1000000 - now())})
