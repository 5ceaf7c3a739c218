-- verb: drop flow
-- from: delayed or waiting
-- to: deleted
-- what: some hundred jobs of a flow that is not made to its end, as its maker died or was refused; after the last, the
--       flow
-- request
--   flow
--   silent_for   only if its maker did nothing for a number of seconds; none to drop it anyway
-- reply
--   done   {more: whether there are more}
--   kept   it is not being made, or its maker is there

--@include flows

local flow = request.flow
local key, silent_for = FLOW .. flow, tonumber(request.silent_for or '0')

local function is_to_be_dropped()
  local state, sign = redis.call('HGET', key, 'state'), redis.call('ZSCORE', FLOWS .. ':building', flow)
  if not sign then return false end
  return state ~= 'running' and tonumber(sign) <= now() / 1000000 - silent_for or state == 'dropping'
end

-- Without `_flow`, nothing follows from its end.
local function drop(number)
  local node = node_of(flow, number)
  if node then
    redis.call('HDEL', node.key, '_flow')
    if node.base then
      redis.call('ZREM', node.base .. ':delayed', node.ident)
      redis.call('LREM', node.base .. ':waiting', 0, node.ident)
    end
    if not node.token then delete_record(node.model, node.pk) end
  end
  redis.call('HDEL', key .. ':nodes', number)
end

if not is_to_be_dropped() then return answer('kept') end
if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'state', 'dropping') end
local name = redis.call('HGET', key, 'name')
local numbers = redis.call('HRANDFIELD', key .. ':nodes', 100)
for _, number in ipairs(numbers) do drop(number) end
if redis.call('EXISTS', key .. ':nodes') == 1 then return answer('done', {more = true}) end
for _, part in ipairs({'', ':open', ':after', ':failed', ':results', ':todo', ':signals', ':waiters'}) do
  redis.call('UNLINK', key .. part)
end
if has_name(flow, name) then redis.call('UNLINK', FLOWS .. ':name:' .. name) end
redis.call('ZREM', FLOWS .. ':building', flow)
return answer('done', {more = false})
