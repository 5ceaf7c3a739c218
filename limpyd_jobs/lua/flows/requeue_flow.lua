-- verb: requeue flow
-- what: the jobs of a flow that failed or were canceled are put back, step by step: see step_flow.lua. A flow with a turn that
--       has ended waits for it again, at the end of the list
-- request
--   flow
-- reply
--   done
--   gone

--@include flows

local flow = request.flow
local key = FLOW .. flow
local state, name, turn, again = unpack(redis.call('HMGET', key, 'state', 'name', 'turn', 'again'))
if state ~= 'running' and state ~= 'ended' and state ~= 'held' then return answer('gone') end

if turn then begin_first(turn) end
redis.call('HDEL', key, 'canceled')
if state == 'ended' and turn then
  redis.call('RPUSH', turn_key(turn), flow)
  redis.call('HSET', key, 'again', '1')
  keep_flow(flow, name, 'held')
  begin_first(turn)
elseif not again or state ~= 'held' then
  leave_to_do(flow, 'requeue 1')
end
return answer('done')
