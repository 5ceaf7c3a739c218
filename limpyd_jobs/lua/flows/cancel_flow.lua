-- verb: cancel flow
-- what: what is left of a flow is canceled, step by step: see step_flow.lua
-- request
--   flow, reason
-- reply
--   done    also if that was begun before: then it is begun anew, for jobs that were put back by hand since
--   ended   all its jobs have ended, and none is about to be put back: nothing is changed
--   gone

--@include flows

local state = redis.call('HGET', FLOW .. request.flow, 'state')
if may_be_canceled(request.flow, state) then
  cancel_flow(request.flow, request.reason, true)
  return answer('done')
end
return answer(state == 'ended' and 'ended' or 'gone')
