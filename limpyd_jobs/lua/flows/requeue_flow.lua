-- verb: requeue flow
-- what: the jobs of a flow that failed or were canceled are put back, step by step: see step_flow.lua
-- request
--   flow
-- reply
--   done
--   gone

--@include flows

local state = redis.call('HGET', FLOW .. request.flow, 'state')
if state == 'running' or state == 'ended' then
  redis.call('HDEL', FLOW .. request.flow, 'canceled')
  leave_to_do(request.flow, 'requeue 1')
  return answer('done')
end
return answer('gone')
