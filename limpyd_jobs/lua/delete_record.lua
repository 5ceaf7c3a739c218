-- Deletes a record: its hash, from its indexes, from its collection. No transition of a job.
--
-- ARGV[1]  model
-- ARGV[2]  pk
--
-- 1, or 0 if it was no record (any more)
--
-- Before this, limpyd has deleted what is stored outside of the hash, or indexed in a way that is its own.

--@include records

local model, pk, changes = model_of(ARGV[1]), ARGV[2], {}

for field in pairs(model.indexes) do
  changes[field] = false
end
probe('SCARD', model.name .. ':collection')
update(model, pk, changes)
redis.call('UNLINK', hash_key(model, pk))
return redis.call('SREM', model.name .. ':collection', pk)
