-- verb: take turn
-- what: tells the next of some moments at which jobs are to be run, for a job that no script puts in a queue
-- request
--   delay, interval, turns, spread
-- reply
--   done   {turn: microseconds since the epoch}
--   too late   it is beyond the year 9999

--@include envelope
--@include spreading

local turn = first_turn(due_at(request.delay))
if not turn_at(turn) then return answer('too late') end
keep_turn(turn_after(turn))
return answer('done', {turn = string.format('%.0f', turn)})
