-- verb: signal flow
-- from: delayed
-- to: waiting
-- what: the jobs of a flow that wait for this signal are put in their queues, some fifty in this step, the others in the next
--       ones: see step_flow.lua. It is kept for those that ask for it later
-- request
--   flow    its name or its id
--   name
--   value   JSON
-- reply
--   received    jobs of it waited
--   kept        {waits: the name of another signal that a job of it waits for, if one does}
--     in all other cases nothing is changed:
--   already   there is one of that name, with another value
--   ended
--   full      it has too many
--   gone

--@include signaling

local flow, name = redis.call('GET', FLOWS .. ':name:' .. request.flow) or request.flow, request.name
local key = FLOW .. flow
local state = redis.call('HGET', key, 'state')
if state ~= 'running' and state ~= 'held' then return answer(state == 'ended' and 'ended' or 'gone') end
redis.call('ZCARD', key .. ':waiters')  -- fails before anything is written
local old = redis.call('HGET', key .. ':signals', name)
if old and value_in(old) ~= request.value then return answer('already') end
if not old and redis.call('HLEN', key .. ':signals') >= MOST_SIGNALS then return answer('full') end
if not old then redis.call('HSET', key .. ':signals', name, UNASKED .. request.value) end
local has_more, number = place_waiters(flow, name)
if has_more then leave_to_do(flow, 'signal 0 ' .. name) end
if number > 0 then return answer('received') end
return answer('kept', {waits = other_waited_for(flow, name)})
