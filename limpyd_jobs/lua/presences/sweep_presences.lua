-- verb: sweep presences
-- what: deletes the records of presences whose lease has ended, some at a time
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model
-- reply
--   done   {ended: how many there were}

--@include presences

return answer('done', {ended = sweep(KEYS[1], model_of(request.model))})
