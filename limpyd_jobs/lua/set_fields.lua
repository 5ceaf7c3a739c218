-- Sets fields of a record, with their indexes. No transition of a job.
--
-- ARGV[1]  model
-- ARGV[2]  pk
-- ARGV[3]  '1' to set the only field if it has no value; or ''
-- ARGV[4…] fields: field, value…
--
-- the number of fields that had no value
-- {'not unique', field, value, pk of its owner}
-- {'gone'}

--@include records

local model, pk, fields = model_of(ARGV[1]), ARGV[2], pairs_from(4)

if not is_in_collection(model, pk) then
  return {'gone'}
end

local number, new = 0, 0
for field in pairs(fields) do
  number = number + 1
  new = new + 1 - redis.call('HEXISTS', hash_key(model, pk), field)
end
if ARGV[3] == '1' and new < number then
  return 0
end

local conflict = not_unique(model, fields, pk)
if conflict then
  return conflict
end
update(model, pk, fields)
return new
