-- Counting: what was done with each of those that are found, in a step that notes it in an entry of the audit.

--@include finding
--@include audit_progress

-- Calls `act` with the pk of each that is found, and the values of its fields: it returns an outcome. Answers how many
-- have which outcome, beside what is in `reply`.
local function count_outcomes(act, reply)
  local outcomes, started = {}, running_clock()
  note_done(0)  -- if that fails, nothing is changed
  local looked, seen = for_each_found(function(pk, values)
    local outcome = act(pk, values)
    outcomes[outcome] = (outcomes[outcome] or 0) + 1
    return running_clock() > started + LONGEST  -- to find one job in a list of a million takes milliseconds
  end)
  note_done(outcomes.done or 0)
  reply = reply or {}
  reply.outcomes, reply.looked, reply.seen = outcomes, looked, seen
  return answer('done', reply)
end
