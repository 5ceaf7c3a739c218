-- verb: tend flow
-- what: looks for nodes of a flow that ended without its notice, as a worker of an older version ended them, or another
--       program deleted them; for nodes that wait for nothing, or for what has ended
-- request
--   flow
--   cursor   '0', or as it was in the last reply
--   job_model, ident   of a job that waits for what it spawned, if the flow of that is gone: it is put in its queue, where it
--                      finds that out; else none
-- reply
--   done   {cursor: '0' at the end, found: the numbers of those nodes}

--@include idents
--@include tending

local flow = request.flow
local key, found = FLOW .. flow, {}

local cursor, numbers = unpack(redis.call('SSCAN', key .. ':open', request.cursor, 'COUNT', 50))
for _, number in ipairs(numbers) do
  local is_done, was_needed = pcall(look_after, flow, number)
  if is_done and was_needed then found[#found + 1] = number end
end
if redis.call('SCARD', key .. ':open') == 0 then end_flow(flow) end
tend_spawned(flow)
if redis.call('EXISTS', key) == 0 then
  redis.call('ZREM', FLOWS .. ':live', flow)
  if request.ident then place_if_it_waits(job_of(request.job_model, request.ident), 'children ' .. flow) end
end
return answer('done', {cursor = cursor, found = found})
