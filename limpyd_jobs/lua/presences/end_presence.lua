-- verb: end presence
-- what: ends the presence of a process that leaves, and notes that it has ended if that is wanted
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model, pk
--   unnoted   1 or nothing: whether no note of it is to stay
-- reply
--   done
--   gone   there is no presence of that pk (any more): nothing is changed

--@include presences

local model, pk = model_of(request.model), request.pk
if is_gone(model, pk) then return answer('gone') end
if not request.unnoted then note_end(KEYS[1], model, pk, 'ended') end
delete_record(model, pk)
return answer('done')
