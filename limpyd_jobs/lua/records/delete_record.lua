-- verb: delete record
-- what: its hash, from its indexes, from its collection
-- request
--   model, pk
-- reply
--   (a number)   1, or 0 if there was no such record (any more)
--
-- Before this, limpyd has deleted the fields outside of the hash, and cleared the indexes that only it can maintain.

--@include records

return delete_record(model_of(request.model), request.pk)
