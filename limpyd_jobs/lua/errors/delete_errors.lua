-- verb: delete errors
-- what: deletes those of some errors that meet some conditions; their jobs stay
-- request
--   model, pks, first, last, within, conditions, standing, entry, unaudited
--   dry   '1' to change nothing, but to count them
-- reply
--   done   {outcomes: {'done', 'broken': number}, looked: at how many, seen: the last pk}

--@include records
--@include counting

local model = model_of(request.model)

return count_outcomes(function(pk)
  return (request.dry or pcall(delete_record, model, pk)) and 'done' or 'broken'
end)
