-- verb: increase field
-- what: adds a number to a field of a record, with its indexes
-- request
--   model, pk, field
--   command   HINCRBY or HINCRBYFLOAT
--   amount
-- reply
--   (a number)   the new value; as a text if it is not an integer of up to 53 bits, as numbers of Lua hold no more
--   not unique   {field, value, pk of its owner}
--   gone

--@include records

local model, pk, field = model_of(request.model), request.pk, request.field
local key = hash_key(model, pk)

if not is_in_collection(model, pk) then
  return answer('gone')
end

-- Redis computes the value, but it is set only after its indexes were probed.
local old = redis.call('HGET', key, field)
local number = redis.call(request.command, key, field, request.amount)
local value = redis.call('HGET', key, field)
if old then redis.call('HSET', key, field, old) else redis.call('HDEL', key, field) end

local conflict = not_unique(model, {[field] = value}, pk)
if conflict then
  return answer('not unique', conflict)
end
update(model, pk, {[field] = value})
return type(number) == 'number' and math.abs(number) < 2 ^ 53 and number or value
