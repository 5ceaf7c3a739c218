-- verb: delete record
-- what: its hash, from its indexes, from its collection
-- request
--   model, pk
-- reply
--   (a number)   1, or 0 if it was no record (any more)
--
-- Before this, limpyd has deleted what is stored outside of the hash, or indexed in a way that is its own.

--@include records

return delete_record(model_of(request.model), request.pk)
