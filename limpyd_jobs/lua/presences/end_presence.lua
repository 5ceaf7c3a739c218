-- verb: end presence
-- what: ends the presence of a process that leaves, and notes that it has ended
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model, pk
-- reply
--   done
--   gone   there is no presence of that pk (any more): nothing is changed

--@include presences

local model, pk = model_of(request.model), request.pk
if is_gone(model, pk) then return answer('gone') end
note_end(KEYS[1], model, pk, 'ended')
delete_record(model, pk)
return answer('done')
