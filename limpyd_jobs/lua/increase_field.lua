-- Adds a number to a field of a record, with its indexes. No transition of a job.
--
-- ARGV[1]  model
-- ARGV[2]  pk
-- ARGV[3]  command: HINCRBY or HINCRBYFLOAT
-- ARGV[4]  field
-- ARGV[5]  amount
--
-- the new value, as a text if it is no integer of up to 53 bits, which is all that numbers of Lua can hold
-- {'not unique', field, value, pk of its owner}
-- {'gone'}

--@include records

local model, pk, field = model_of(ARGV[1]), ARGV[2], ARGV[4]
local key = hash_key(model, pk)

if not is_in_collection(model, pk) then
  return {'gone'}
end

-- It is Redis that computes, but the value is set once it is known that its indexes can be.
local old = redis.call('HGET', key, field)
local number = redis.call(ARGV[3], key, field, ARGV[5])
local value = redis.call('HGET', key, field)
if old then redis.call('HSET', key, field, old) else redis.call('HDEL', key, field) end

local conflict = not_unique(model, {[field] = value}, pk)
if conflict then
  return conflict
end
update(model, pk, {[field] = value})
return type(number) == 'number' and math.abs(number) < 2 ^ 53 and number or value
