-- verb: tend flow
-- what: looks for nodes of a flow that ended without its notice, as a worker of an older version ended them, or another
--       program deleted them; for nodes that wait for nothing, or for what has ended. If the flow is gone, nodes that wait for
--       others are canceled, and the job that spawned them is put in its queue, where it finds that out
-- request
--   flow
--   cursor   '0', or as it was in the last reply
--   job_model, ident   of a job that waits for what it spawned, if nothing else says which job that is
-- reply
--   done   {cursor: '0' at the end, found: the numbers of those nodes}

--@include idents
--@include tending

local flow = request.flow
local key, found = FLOW .. flow, {}
local is_missing = redis.call('EXISTS', key) == 0

local cursor, numbers = unpack(redis.call('SSCAN', key .. ':open', request.cursor, 'COUNT', 50))

-- Cancels a node that waits for others, as nothing would ever let it go.
local function give_up_waiting(_, number)
  local node = node_of(flow, number)
  if not node or not node.is_parked or node.kind ~= 'after' then return false end
  undo_node(node, 'its flow is gone')
  return true
end

for _, number in ipairs(numbers) do
  local is_done, was_needed = pcall(is_missing and give_up_waiting or look_after, flow, number)
  if is_done and was_needed then found[#found + 1] = number end
end
if redis.call('SCARD', key .. ':open') == 0 then end_flow(flow) end
tend_spawned(flow)
tend_turn(flow)
if cursor == '0' and is_missing then
  redis.call('ZREM', FLOWS .. ':live', flow)
  local spawner = request.ident and job_of(request.job_model, request.ident) or spawner_of(redis.call('HGET', FLOWS .. ':spawners', flow))
  redis.call('HDEL', FLOWS .. ':spawners', flow)
  if spawner then place_if_it_waits(spawner, 'children ' .. flow) end
end
return answer('done', {cursor = cursor, found = found})
