-- verb: lease due
-- what: gives the timed records that are due to one owner, for a while
-- KEYS[1]  range index of the field that says when a record is due
-- KEYS[2]  sorted set of the leases
-- request
--   model
--   field     that says when a record is due
--   owner     who gets them, and the records that are leased to it already
--   lease
--   moment    the time at which they are due: seconds since the epoch
--   limit     how many to give at most
--   skipped   JSON, a list: the pks to pass over, or none
-- reply
--   done   {pks, records: [{field: value}]}, the earliest first
--
-- A lease that has ended belongs to no process.

--@include leases

local model, owner, limit = model_of(request.model), request.owner, tonumber(request.limit)
local due, leases = KEYS[1], KEYS[2]
local holders, pks, records = model.indexes.leased_by or NOTHING, {}, {}

for _, pk in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', score(now()), 'LIMIT', 0, 1000)) do
  redis.call('ZREM', leases, pk)
  if not is_gone(model, pk) then pcall(update, model, pk, {leased_by = false}) end  -- unless a key is foreign
end

-- Takes a record, unless another process has it; returns whether there are enough now. An entry of the index that is not
-- a due record, or whose owner stands in a foreign key, is left to the check.
local function take(pk)
  local found, fields = redis.pcall('HGETALL', hash_key(model, pk)), {}
  for i = 1, #found, 2 do fields[found[i]] = found[i + 1] end
  local at = fields[request.field]
  if not at or (tonumber(at) or 0) > tonumber(request.moment) then return end
  if fields.leased_by and fields.leased_by ~= owner then
    if is_leased(leases, pk) or not pcall(update, model, pk, {leased_by = false}) then return end
  end
  pks[#pks + 1], records[#records + 1] = pk, fields
  return #pks == limit
end

first_of_due(due, request.moment, request.skipped, take)
local ends = score(now() + tonumber(request.lease) * 1000000)
for first = 1, #pks, 500 do
  local last, scored = math.min(first + 499, #pks), {}
  for _, prefix in ipairs(holders) do probe('SCARD', prefix .. owner) end
  for i = first, last do
    redis.call('HSET', hash_key(model, pks[i]), 'leased_by', owner)
    scored[#scored + 1] = ends
    scored[#scored + 1] = pks[i]
  end
  for _, prefix in ipairs(holders) do redis.call('SADD', prefix .. owner, unpack(pks, first, last)) end
  redis.call('ZADD', leases, unpack(scored))
end
return answer('done', {pks = pks, records = records})
