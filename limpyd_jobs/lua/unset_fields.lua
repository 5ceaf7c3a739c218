-- Unsets fields of a record, with their indexes. No transition of a job.
--
-- ARGV[1]  model
-- ARGV[2]  pk
-- ARGV[3…] fields
--
-- the number of fields that had a value

--@include records

local model, pk, changes, number = model_of(ARGV[1]), ARGV[2], {}, 0

for i = 3, #ARGV do
  if changes[ARGV[i]] == nil then
    number = number + redis.call('HEXISTS', hash_key(model, pk), ARGV[i])
    changes[ARGV[i]] = false
  end
end
update(model, pk, changes)
return number
