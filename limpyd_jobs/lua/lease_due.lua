-- verb: lease due
-- what: gives the timed records that are due to one owner, for a while
-- KEYS[1]  range index of the field that says when a record is due
-- KEYS[2]  sorted set of the leases
-- request
--   model
--   field     that says when a record is due
--   owner     who gets them, and those that are leased to it already
--   lease
--   moment    what is due at that time is due: seconds since the epoch
--   limit     how many to give at most
--   skipped   JSON, a list: the pks to pass over, or none
-- reply
--   done   {records: [pk, [field, value…]]…, the earliest first}
--
-- A lease that has ended is nobody's.

--@include leases

local model, owner, limit = model_of(request.model), request.owner, tonumber(request.limit)
local due, leases = KEYS[1], KEYS[2]
local records, ends = {}, score(now() + tonumber(request.lease) * 1000000)

for _, pk in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', score(now()), 'LIMIT', 0, 1000)) do
  redis.call('ZREM', leases, pk)
  if not is_gone(model, pk) then update(model, pk, {leased_by = false}) end
end

local function value_in(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return false
end

-- What is found in the index, and is no record that is due, is left to the check.
local function lease(pk)
  local fields = redis.pcall('HGETALL', hash_key(model, pk))
  if fields.err or not value_in(fields, request.field) then
    return
  end
  local holder = value_in(fields, 'leased_by')
  if holder ~= owner then
    if holder and is_leased(leases, pk) then return end
    write_fields(model, pk, {leased_by = owner}, {leased_by = holder})
  end
  send('ZADD', leases, ends, pk)
  records[#records + 1] = {pk, fields}
  if #records % 500 == 0 then end_batch() else keep_pending() end
  return #records == limit
end

probe('ZCARD', due, leases)
begin_batch()
first_of_due(due, request.moment, request.skipped, lease)
end_batch()
return answer('done', {records = records})
