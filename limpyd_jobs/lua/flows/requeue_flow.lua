-- verb: requeue flow
-- what: the jobs of a flow that failed or were canceled are put back, step by step: see step_flow.lua. A flow that has ended
--       and whose turn another one has is held until that has ended, too
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
if state == 'ended' and turn and redis.call('EXISTS', turn_key(turn)) == 1 then
  redis.call('RPUSH', turn_key(turn), flow)
  redis.call('HSET', key, 'again', '1')
  keep_flow(flow, name, 'held')
elseif not again then
  leave_to_do(flow, 'requeue 1')
end
return answer('done')
