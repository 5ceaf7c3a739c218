-- Tending: what a flow missed of a node is made up for.

--@include flows
--@include signaling

-- Of how many nodes before one is asked at most: of the others, once these have ended.
local MOST_BEFORE = 1000

-- The ends that a node waits for, though they have come: it was not made yet, or was just put back. Before the flow is
-- made, that of node 0 has not.
local function ends_missed(flow, number)
  local key, missed = FLOW .. flow, {}
  local before = numbers_before(flow, number, MOST_BEFORE)
  if not before[1] or redis.call('HGET', key, 'state') ~= 'running' then return missed end
  local are_open = redis.call('SMISMEMBER', key .. ':open', unpack(before))
  local failed = redis.call('HMGET', key .. ':failed', unpack(before))
  for i, one in ipairs(before) do
    if are_open[i] == 0 then missed[#missed + 1] = {one, failed[i] or STATUSES.SUCCESS} end
  end
  return missed
end

-- Looks after a node that waits for others; returns whether there was something to do.
local function tend_parked(flow, number)
  if has_none_before(flow, number) then
    let_run_if_ready(flow, number)
    return true
  end
  local missed = ends_missed(flow, number)
  for _, ended in ipairs(missed) do note_end_of_node(flow .. ' ' .. ended[1] .. ' run ' .. number, ended[2]) end
  return missed[1] ~= nil
end

-- Looks after a node that waits for a signal of its flow; returns whether it was there.
local function tend_waiting(node)
  local name = signal_in(node.kind)
  return name and signal_of_flow(node.text or '', name) ~= nil and place_waiter(node, name)
end

-- Looks after a flow that a job spawned: cancels it with the job; once it has ended, lets that job go on, or the keys expire,
-- if it reads them no more.
local function tend_spawned(flow)
  local state, text = unpack(redis.call('HMGET', FLOW .. flow, 'state', 'spawner'))
  if not text then return end
  local spawner = spawner_of(text)
  local status, spawned = unpack(spawner and redis.pcall('HMGET', spawner.key, 'status', '_spawned') or NOTHING)
  if (state == 'running' or state == 'held') and status == STATUSES.CANCELED then cancel_spawned(spawned or '') end
  if state ~= 'ended' then return end
  local reads_no_more = not status or status == STATUSES.SUCCESS or status == STATUSES.CANCELED
  if reads_no_more or not string.find(spawned or '', '"' .. flow .. '"', 1, true) then
    expire_flow(flow)
  else
    pcall(place_if_it_waits, spawner, 'children ' .. flow)
  end
end

-- Looks after a flow that runs one at a time: whether it is in the list, and whether it is its turn.
local function tend_turn(flow)
  local state, turn = unpack(redis.call('HMGET', FLOW .. flow, 'state', 'turn'))
  if not turn or state ~= 'held' and state ~= 'running' then return end
  if not redis.call('LPOS', turn_key(turn), flow) then
    redis.call(state == 'running' and 'LPUSH' or 'RPUSH', turn_key(turn), flow)
  end
  begin_first(turn)
end

-- Leaves it to others to find those that come after a node whose hash is gone, or does not say it: in steps, all such nodes are
-- found first, so that one look at who waits for whom is enough.
local function follow_all_missed(flow)
  local is_last = redis.call('EXISTS', FLOW .. flow .. ':open') == 0
  if is_last or redis.call('LPOS', FLOW .. flow .. ':todo', 'missed 0') then return end
  leave_to_do(flow, 'tend 1')
  leave_to_do(flow, 'missed 0')
end

-- Looks after a node; returns whether there was something to do.
local function look_after(flow, number)
  -- It may have ended by the end of another one.
  if redis.call('SISMEMBER', FLOW .. flow .. ':open', number) == 0 then return false end
  local node = node_of(flow, number)
  if not node or node.queued ~= '1' then
    local text = node and node.text
    note_end_of_node(text or flow .. ' ' .. number .. ' run', node and node.status or 'gone')
    if not text then follow_all_missed(flow) end
  elseif node.is_parked and node.kind == 'after' then
    return tend_parked(flow, number)
  else
    return node.is_parked and tend_waiting(node)
  end
  return true
end
