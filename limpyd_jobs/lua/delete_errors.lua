-- verb: delete errors
-- what: deletes those of some errors that meet some conditions; their jobs stay
-- request
--   model, pks, first, last, within, conditions, entry, unaudited
--   dry   '1' to change nothing, but to count them
-- reply
--   done   {outcomes: {'done', 'broken': number}, looked: at how many, seen: the last pk}

--@include records
--@include finding
--@include noting

local model, outcomes, started = model_of(request.model), {}, running_clock()
note_done(0)  -- if that fails, nothing is deleted

local function outcome_of(pk)
  return (request.dry or pcall(delete_record, model, pk)) and 'done' or 'broken'
end

local looked, seen = for_each_found(function(pk)
  local outcome = outcome_of(pk)
  outcomes[outcome] = (outcomes[outcome] or 0) + 1
  return running_clock() > started + LONGEST
end)
note_done(request.dry and 0 or outcomes.done or 0)
return answer('done', {outcomes = outcomes, looked = looked, seen = seen})
