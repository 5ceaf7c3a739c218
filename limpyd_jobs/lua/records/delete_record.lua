-- verb: delete record
-- what: its hash, from its indexes, from its collection
-- request
--   model, pk
-- reply
--   (a number)   1, or 0 if there was no such record (any more)
--   done         instead, if something is left to do of its flow
--
-- Before this, limpyd has deleted the fields outside of the hash, and cleared the indexes that only it can maintain.

--@include records

local number = delete_record(model_of(request.model), request.pk)
return unfinished_flows and answer('done') or number
