-- verb: drop flow
-- from: delayed or waiting
-- to: deleted
-- what: some fifty jobs of a flow that is not made to its end, as its maker died or was refused; after the last, the
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

-- A field of the flow; nil if its key is of a wrong type, as another program wrote it.
local function field(name)
  local value = redis.pcall('HGET', key, name)
  return type(value) == 'string' and value or nil
end

local function is_to_be_dropped()
  local state, sign = field('state'), redis.call('ZSCORE', FLOWS .. ':building', flow)
  if not sign then return false end
  return state ~= 'running' and tonumber(sign) <= now() / 1000000 - silent_for or state == 'dropping'
end

-- Without `_flow`, nothing follows from its end.
local function drop(number)
  local is_readable, node = pcall(node_of, flow, number)
  if is_readable and node then
    redis.call('HDEL', node.key, '_flow')
    if node.base then
      redis.call('ZREM', node.base .. ':delayed', node.ident)
      if node.status ~= STATUSES.DELAYED then redis.call('LREM', node.base .. ':waiting', 0, node.ident) end
    end
    if not node.token then delete_record(node.model, node.pk) end
  end
  redis.call('HDEL', key .. ':nodes', number)
end

if not is_to_be_dropped() then return answer('kept') end
if redis.call('TYPE', key).ok == 'hash' then redis.call('HSET', key, 'state', 'dropping') end
local name = field('name')
local numbers = redis.pcall('HRANDFIELD', key .. ':nodes', MOST_DEPENDENTS)
for _, number in ipairs(numbers) do drop(number) end
if not numbers.err and redis.call('EXISTS', key .. ':nodes') == 1 then return answer('done', {more = true}) end
for _, part in ipairs({'', ':open', ':after', ':failed', ':results', ':todo', ':signals', ':waiters'}) do
  redis.call('UNLINK', key .. part)
end
if has_name(flow, name) then redis.call('UNLINK', FLOWS .. ':name:' .. name) end
redis.call('ZREM', FLOWS .. ':building', flow)
redis.call('HDEL', FLOWS .. ':spawners', flow)
return answer('done', {more = false})
