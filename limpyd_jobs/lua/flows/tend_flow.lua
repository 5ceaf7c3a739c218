-- verb: tend flow
-- what: looks for nodes of a flow that ended without its notice, as a worker of an older version ended them, or another
--       program deleted them; and for nodes that wait for nothing
-- request
--   flow
--   cursor   '0', or as it was in the last reply
-- reply
--   done   {cursor: '0' at the end, found: the numbers of those nodes}

--@include flows

local flow = request.flow
local key, found = FLOW .. flow, {}

-- Those that come after a node whose hash is gone, as text.
local function all_after(number)
  local numbers, cursor = {}, '0'
  repeat
    local reply = redis.call('ZSCAN', key .. ':after', cursor, 'MATCH', '*:' .. number, 'COUNT', 1000)
    cursor = reply[1]
    for i = 1, #reply[2], 2 do numbers[#numbers + 1] = string.match(reply[2][i], '^%d+') end
  until cursor == '0'
  return table.concat(numbers, ',')
end

local function tend(number)
  local node = node_of(flow, number)
  if not node then
    note_end_of_node(flow .. ' ' .. number .. ' run ' .. all_after(number), 'gone')
  elseif node.queued ~= '1' then
    note_end_of_node(node.text, node.status or 'gone')
  elseif node.is_parked and node.kind == 'after' and has_none_before(flow, number) then
    let_run_if_ready(flow, number)
  else
    return
  end
  found[#found + 1] = number
end

local cursor, numbers = unpack(redis.call('SSCAN', key .. ':open', request.cursor, 'COUNT', 50))
for _, number in ipairs(numbers) do
  local is_open = redis.call('SISMEMBER', key .. ':open', number) == 1  -- it may have ended by the end of another one
  if is_open then pcall(tend, number) end
end
if redis.call('SCARD', key .. ':open') == 0 then end_flow(flow) end
if redis.call('EXISTS', key) == 0 then redis.call('ZREM', FLOWS .. ':live', flow) end
return answer('done', {cursor = cursor, found = found})
