-- verb: step flow
-- from: waiting, delayed, running, error or canceled
-- to: the same, waiting, delayed or canceled
-- what: goes on with what is left to do of a flow, for some fifty of its jobs: what follows from an end, or a signal, or
--       to cancel, to requeue or to tend it
-- request
--   flow
-- reply
--   done   {more: whether there is more to do, flows: others of which there is, too, if any}: also if a job is 'gone' or 'ended', or cannot be put back, as it is
--          'not in error', or one of its identifier is 'already queued'

--@include canceling
--@include requeueing
--@include signaling
--@include tending

local flow = request.flow
local key = FLOW .. flow

local function what_is_open(node)
  return node and node.queued == '1' and node.status ~= STATUSES.CANCELED
end

-- At how many entries of waiting lists a step looks at most, but for its first job; and how many it has looked at.
local MOST_LOOKED_AT, looked_at = 20000, 0

-- Takes a node that is canceled out of its queue: the last nodes, which come first, stand at the end of its list.
local function leave(node)
  local waiting = node.base .. ':waiting'
  if node.status == STATUSES.DELAYED and redis.call('ZREM', node.base .. ':delayed', node.ident) == 1 then return end
  local position = redis.call('LPOS', waiting, node.ident, 'RANK', -1)
  looked_at = looked_at + redis.call('LLEN', waiting) - (position or 0)
  if position then
    redis.call('LREM', waiting, -1, node.ident)
  elseif unpark(node.base, node.ident) == 0 then
    unplace_from(node.base, node.ident)
  end
end

-- Cancels some nodes, the last ones first.
local function cancel_some(last)
  local reason, number = redis.call('HGET', key, 'canceled'), math.min(last, MAX_NODES)
  local first = math.max(number - MOST_DEPENDENTS + 1, 1)
  while number >= first and looked_at < MOST_LOOKED_AT do
    local node = node_of(flow, string.format('%d', number))
    if what_is_open(node) then
      pcall(cancel_job, node, {unplace = function() if node.base then leave(node) end end, reason = reason})
    end
    number = number - 1
  end
  return number > 0 and 'cancel ' .. number
end

-- Up to how many failed nodes are looked for among those that a node comes after, not the other way round; and among how many
-- of these at once.
local MOST_FAILED, MOST_BEFORE = 200, 1000

-- Whether a node comes after one that failed, and could not be put back before it, as it is gone or another job of its
-- identifier is queued; or that has failed again.
local function comes_after_failed(number)
  if redis.call('HLEN', key .. ':failed') <= MOST_FAILED then
    for _, failed in ipairs(redis.call('HKEYS', key .. ':failed')) do
      if redis.call('ZSCORE', key .. ':after', number .. ':' .. failed) then return true end
    end
    return false
  end
  local first = '[' .. number .. ':'
  while true do
    local entries = redis.call('ZRANGEBYLEX', key .. ':after', first, '(' .. number .. ';', 'LIMIT', 0, MOST_BEFORE)
    if not entries[1] then return false end
    local before = {}
    for i, entry in ipairs(entries) do before[i] = string.match(entry, ':(.*)$') end
    for _, how in ipairs(redis.call('HMGET', key .. ':failed', unpack(before))) do
      if how then return true end
    end
    first = '(' .. entries[#entries]
  end
end

-- Puts a node that was canceled back where it waits for those before it, or lets it go. If there is nothing that would
-- let it go later, it stays canceled.
local function put_back(node)
  if not node.base or other_queued(node, node.identifier) or comes_after_failed(node.number) then return end
  if has_none_before(flow, node.number) then return let_run(node) end
  probe('ZCARD', node.base .. ':delayed')
  update(node.model, node.pk, {
    status = STATUSES.DELAYED, queued = '1', delayed_until = LAST_DATE, _waits = LAST_DATE .. '\nafter\n', _cancel_reason = false,
  }, node.known)
  redis.call('ZADD', node.base .. ':delayed', '253402300799', node.ident)
end

-- Whether a node failed, or was canceled.
local function is_to_be_put_back(node)
  if not node then return false end
  return node.status == STATUSES.CANCELED and node.queued ~= '1' or node.status == STATUSES.ERROR and not node.token
end

-- Lets a node that runs whatever became of those before it wait again for those of them, among some, that are put back: it
-- waits for them no more since they failed. At how many it may look is given; returns at how many it did, and what is left.
local function wait_again(node, ranges, most)
  local numbers, left = numbers_from(ranges, most, tonumber(node.number) - 1)
  local entries = {}
  for i, is_open in ipairs(numbers[1] and redis.call('SMISMEMBER', key .. ':open', unpack(numbers)) or NOTHING) do
    if is_open == 1 then entries[#entries + 1], entries[#entries + 2] = 0, node.number .. ':' .. numbers[i] end
  end
  if entries[1] then redis.call('ZADD', key .. ':after', unpack(entries)) end
  return #numbers, left
end

-- Puts a job in error back; or, if it waits for others again, where it does so.
local function requeue_error(node)
  local model = redis.call('HGET', FLOWS .. ':classes', string.match(node.base, '^(.*):'))
  local name = redis.call('HGET', node.base .. ':hash', 'name')
  if not model or not name then return end
  local waits = node.policy == 'run' and not has_none_before(flow, node.number)
  local due = waits and {at = parse_date(LAST_DATE), text = LAST_DATE} or nil
  local outcome = requeue_job(node, {model = model_of(model), name = name, due = due})
  if waits and outcome == 'done' then update(node.model, node.pk, {_waits = LAST_DATE .. '\nafter\n'}) end
end

local function requeue_node(node)
  if node.status == STATUSES.CANCELED then
    put_back(node)
  elseif node.base then
    requeue_error(node)
  end
end

-- Puts some nodes back, given what is left of those before the first one; none if the flow was canceled after that began.
local function requeue_some(first, ranges)
  if redis.call('HEXISTS', key, 'canceled') == 1 then return nil end
  local size, most = size_of(redis.call('HGET', key, 'size')), MOST_BEFORE
  local last = math.min(first + MOST_DEPENDENTS - 1, size)
  for number = first, last do
    local node = node_of(flow, string.format('%d', number))
    if is_to_be_put_back(node) then
      if node.policy == 'run' then
        if number > first or ranges == '' then ranges = redis.call('HGET', node.key, '_after') or '' end
        local is_done, looked_at, left = pcall(wait_again, node, ranges, most)
        if is_done and left ~= '' then return string.format('requeue %d %s', number, left) end
        most = is_done and most - looked_at or most
      end
      pcall(requeue_node, node)
    end
  end
  return last < size and 'requeue ' .. (last + 1)
end

local function tend_some(first)
  local size = size_of(redis.call('HGET', key, 'size'))
  local last = math.min(first + MOST_DEPENDENTS - 1, size)
  for number = first, last do pcall(look_after, flow, string.format('%d', number)) end
  return last < size and 'tend ' .. (last + 1)
end

-- Follows, for some nodes that wait, the ends that they missed.
local function follow_some_missed(cursor)
  local next_cursor, found = unpack(redis.call('ZSCAN', key .. ':after', cursor, 'COUNT', MOST_DEPENDENTS))
  local is_running = redis.call('HGET', key, 'state') == 'running'
  for i = 1, #found, 2 do
    local number, before = string.match(found[i], '^(%d+):(%d+)$')
    if number and (before ~= '0' or is_running) then
      local waits, is_open = unpack(redis.call('SMISMEMBER', key .. ':open', number, before))
      if waits == 1 and is_open == 0 then
        local how = redis.call('HGET', key .. ':failed', before) or STATUSES.SUCCESS
        note_end_of_node(flow .. ' ' .. before .. ' run ' .. number, how)
      end
    end
  end
  return next_cursor ~= '0' and 'missed ' .. next_cursor
end

-- Does what an entry says; returns what is left of it.
local function go_on(entry)
  local verb, first, rest = string.match(entry, '^(%a+) (%d+) ?(.*)$')
  if verb == 'end' then
    local status, dependents = string.match(rest, '^(%S+) (.*)$')
    note_end_of_node(flow .. ' ' .. first .. ' run ' .. dependents, status)
  elseif verb == 'cancel' then
    return cancel_some(tonumber(first))
  elseif verb == 'requeue' then
    return requeue_some(tonumber(first), rest)
  elseif verb == 'tend' then
    return tend_some(tonumber(first))
  elseif verb == 'missed' then
    return follow_some_missed(first)
  elseif verb == 'signal' then
    return place_waiters(flow, rest) and entry
  end
end

local entry = redis.call('LPOP', key .. ':todo')
if entry then
  local left = go_on(entry)
  if left then redis.call('LPUSH', key .. ':todo', left) end
end
local more = redis.call('EXISTS', key .. ':todo') == 1
-- The caller goes on with this one anyway.
for i = #(unfinished_flows or NOTHING), 1, -1 do
  if unfinished_flows[i] == flow then table.remove(unfinished_flows, i) end
end
if not more then
  redis.call('ZREM', FLOWS .. ':todo', flow)
  if redis.call('SCARD', key .. ':open') == 0 then end_flow(flow) end
end
return answer('done', {more = more})
