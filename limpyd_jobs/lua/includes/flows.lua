-- Flows: jobs that begin once others have ended, the *nodes* of a flow, which have numbers. Its keys begin with
-- 'limpyd-jobs:flow:' and its id:
--   (nothing)   hash: name, state ('building', 'dropping', 'held', 'running' or 'ended'), size, added, ended; canceled: why
--   :nodes      hash: of each number, the job: its model and pk, and its name in the flow
--   :open       set: the numbers of the nodes that have not ended
--   :after      sorted set, all scores 0: '12:3' if node 12 waits for the end of node 3. Node 0 is the beginning of a
--               flow that is made in several steps
--   :failed     hash: of the numbers of nodes that ended otherwise than as a success, how
--   :results    hash: of numbers, what the job returned, as JSON
--   :todo       list: what is left of a step that is too long for one: see step_flow.lua
--   :signals, :waiters   see signaling.lua
-- A flow that a job spawned has in its hash, too: spawner, the beginning of the keys of that job; and policy, 'cancel' to
-- cancel the others if one fails. The job has in its hash `_spawned`: JSON, by the name of each spawn, the id of the flow; or
-- 'making' and the id, until its last step.
-- Of flows that run one at a time, each has in its hash `turn`, a text that they share, and `heads`, the nodes that come
-- after no other one. 'limpyd-jobs:flows:turn:…' is the list of those that have not ended; the first one runs, the others are
-- held: node 0 has not ended. The end of one begins the next in that same step. One that had ended and is put back as a whole
-- is held again, with `again`; if a job of it is put back by hand, it runs at once, and the next one waits for it, too.
--
-- Beside them are 'limpyd-jobs:flows:live', ':building' and ':todo', sorted sets of ids by when they were put there;
-- ':spawners', a hash: of those that a job spawned, that job, should the flow be gone; ':ended', by when they expire; ':name:…', the id of the last flow of a name; and ':classes', a hash of the models
-- of jobs and queues in flows, by the beginning of their keys.
--
-- Each node has in its hash `_flow`: the id of the flow, its number, what to do if one that it comes after fails
-- ('fail', 'run' or 'cancel'), and the numbers of those after it, such as '3,7-10'; `_after`: the numbers of those that
-- it comes after. While it waits for them, it is delayed until its deadline, if any, else until the end of all dates;
-- `_waits` has that date, what it waits for, and until when it was to be delayed itself, in three lines. It is *parked*
-- as long as the dates are the same: whoever delays it otherwise, or lets it wait, lets it go. 'undone' instead of a
-- date is a node that was canceled because one that it comes after failed; it is parked no more, but may be revived.
--
-- All ends of jobs come here, from `update` and `delete_record`. If a step fails, the node stays open, and the
-- maintenance task of workers finds it: each step can be done again.

--@include clock
--@include records
--@include signals

local FLOW, FLOWS = 'limpyd-jobs:flow:', 'limpyd-jobs:flows'

-- For how many dependents a call does something at most: what is left is left to others.
local MOST_DEPENDENTS = 50

-- For how many seconds a flow is kept that has ended: as a success, or otherwise.
local FLOW_KEPT, FAILED_FLOW_KEPT = 86400, 7 * 86400

-- How many nodes a flow has at most.
local MAX_NODES = 100000

-- Until when a job is delayed that waits without a deadline.
local LAST_DATE = '9999-12-31 23:59:59'

local is_following, dependents_seen = false, 0

-- The numbers among '3,7-10', up to a number of them, and what is left of the text. Beyond the size of the flow, there
-- are none, whatever another program wrote.
--@rarely
local function numbers_from(ranges, most, size)
  local numbers = {}
  for first, last, position in string.gmatch(ranges, '(%d+)%-?(%d*)()') do
    last = math.min(tonumber(last) or tonumber(first), size)
    for number = tonumber(first), last do
      if #numbers >= most then
        return numbers, string.format('%d-%d', number, last) .. string.sub(ranges, position)
      end
      numbers[#numbers + 1] = string.format('%d', number)
    end
  end
  return numbers, ''
end

-- The highest number of a node of a flow; none is beyond the bound, whatever another program wrote: a loop up to it has an end.
--@rarely
local function size_of(text)
  return math.min(MAX_NODES, tonumber(text or '') or MAX_NODES)
end

-- What a job knows of its flow; nil if another program wrote something else there: then it is in none.
--@rarely
local function parse_flow(text)
  local flow, number, policy, dependents = string.match(text, '^(%S+) (%d+) (%a+) ?([%d,-]*)$')
  return flow and {flow = flow, number = number, policy = policy, dependents = dependents}
end

-- Until when a job waits, as its `_waits` says: one that waits for a signal, or for its children, has no date there if it does
-- so without a limit.
--@rarely
local function date_in(waits)
  return string.find(waits, '^\n%l+ %S') and LAST_DATE or string.match(waits, '^[^\n]*')
end

-- Whether `_waits` of a job does not say what it waits for, as another program wrote it.
--@rarely
local function is_unreadable(waits)
  return not parse_date(date_in(waits))
end

-- Whether a job waits for others. If `_waits` is unreadable, one that is delayed until the end of all dates does.
--@rarely
local function is_parked(status, delayed_until, waits)
  if not waits or status ~= STATUSES.DELAYED then return false end
  return delayed_until == date_in(waits) or delayed_until == LAST_DATE and is_unreadable(waits)
end

-- A node of a flow as a job, with what decides what becomes of it; nil if the job is gone. It has no text if another
-- program wrote something else there.
--@rarely
local function node_of(flow, number)
  local text = redis.call('HGET', FLOW .. flow .. ':nodes', number) or ''
  local name, pk, own_name = string.match(text, '^(%S+):([^:%s]+) (.*)$')
  local json = name and redis.call('HGET', FLOWS .. ':classes', name)
  if not json then return nil end
  local model = model_of(json)
  local key = hash_key(model, pk)
  local of_flow, status, queued, waits, delayed_until, base, token, identifier = unpack(redis.call(
    'HMGET', key, '_flow', 'status', 'queued', '_waits', 'delayed_until', '_queue_key', '_claim_token', 'identifier'))
  if not of_flow then return nil end
  local parsed = parse_flow(of_flow)
  local is_own = parsed and parsed.flow == flow and parsed.number == number
  local date, kind, own_delay = string.match(waits or '', '^([^\n]*)\n?([^\n]*)\n?(.*)$')
  local waits_for_others = kind and not string.match(kind, '^%l+ %S')
  return {
    flow = flow, number = number, name = own_name, model = model, pk = pk, key = key, ident = model.path .. ':' .. pk,
    text = is_own and of_flow, policy = is_own and parsed.policy or 'fail', status = status, queued = queued, base = base, token = token,
    identifier = identifier, kind = waits_for_others and 'after' or kind, own_delay = own_delay,
    is_undone = date == 'undone' and status == STATUSES.CANCELED,
    is_parked = queued == '1' and not token and is_parked(status, delayed_until, waits),
    known = {status = status, queued = queued, _flow = of_flow, _unique_for = false},
  }
end

-- The numbers of some of those whose ends a node waits for.
--@rarely
local function numbers_before(flow, number, most)
  local first, last = '[' .. number .. ':', '(' .. number .. ';'
  local entries = redis.call('ZRANGEBYLEX', FLOW .. flow .. ':after', first, last, 'LIMIT', 0, most)
  for i, entry in ipairs(entries) do entries[i] = string.match(entry, ':(.*)$') end
  return entries
end

-- Whether there is none left of those that a node comes after.
--@rarely
local function has_none_before(flow, number)
  return #numbers_before(flow, number, 1) == 0
end

-- Lets a job go that waited, or was undone, with other changes: into its waiting list, unless it was to be delayed itself.
--@rarely
local function let_run(node, changes)
  local own_delay = parse_date(node.own_delay)
  probe('LLEN', node.base .. ':waiting')
  probe('ZCARD', node.base .. ':delayed')
  changes = changes or {}
  changes.queued, changes._waits, changes._cancel_reason = '1', false, false
  if own_delay and own_delay > now() then
    changes.status, changes.delayed_until = STATUSES.DELAYED, node.own_delay
    update(node.model, node.pk, changes, node.known)
    redis.call('ZADD', node.base .. ':delayed', score(own_delay), node.ident)
    return
  end
  changes.status, changes.delayed_until = STATUSES.WAITING, now_text()
  update(node.model, node.pk, changes, node.known)
  redis.call('ZREM', node.base .. ':delayed', node.ident)
  redis.call('RPUSH', node.base .. ':waiting', node.ident)
  notify_worker(node.base)
end

-- Until when a job waits for something, as text, given its `_waits`, empty for no limit; and since when. nil if it does not.
--@rarely
local function wait_for(waits, what)
  local date, own, since = string.match(waits or '', '^([^\n]*)\n([^\n]*)\n([^\n]*)\n?%x*$')
  if own == what then return date, since end
end

-- `_waits` of a job that waits for a signal, or for its children: until when, empty for no limit, for what, since when, and by
-- which claim. Of its token, some digits of a hash: the job may wait for years, and many do.
--@rarely
local function waits_of(date, what, since, token)
  since = since or string.format('%d', now() / 1000000)
  return table.concat({date, what, since, string.sub(redis.sha1hex(token), 1, 6)}, '\n')
end

-- Whether a job waits for a signal, or for its children, since the claim of a token.
--@rarely
local function waits_since_claim(key, token)
  local held, waits = unpack(redis.call('HMGET', key, '_claim_token', '_waits'))
  local mark = string.match(waits or '', '^[^\n]*\n%l+ [^\n]*\n[^\n]*\n(%x+)$')
  return not held and mark == string.sub(redis.sha1hex(token), 1, 6)
end

-- Whether the signals of a job, given as it stores them, tell that it has begun. Those that it has not asked for were sent
-- before, and tell nothing; what another program wrote counts as a sign.
--@rarely
local function tell_of_begin(text)
  local ok, stored = pcall(cjson.decode, text)
  if not ok or type(stored) ~= 'table' or not next(stored) then return true end
  for _, value in pairs(stored) do
    if type(value) ~= 'string' or string.sub(value, 1, 1) ~= '?' then return true end
  end
  return false
end

-- The signals of a job as it stores them, such that they tell that it has begun: else with a nameless one, which came in vain.
--@rarely
local function telling_of_begin(text)
  if text and tell_of_begin(text) then return text end
  return text and '{"":"!",' .. string.sub(text, 2) or '{"":"!"}'
end

-- Puts a job in its queue if it waits for something, with other changes. Returns whether it did.
--@rarely
local function place_if_it_waits(job, what, changes)
  local status, queued, token, waits, delayed_until, base, flow, signals = unpack(redis.call(
    'HMGET', job.key, 'status', 'queued', '_claim_token', '_waits', 'delayed_until', '_queue_key', '_flow', '_signals'))
  local is_waiting = queued == '1' and not token and base and is_parked(status, delayed_until, waits)
  if not is_waiting or not (wait_for(waits, what) or is_unreadable(waits)) then return false end
  local known = {status = status, queued = queued, _flow = flow, _unique_for = false}
  changes = changes or {}
  changes._signals = changes._signals or telling_of_begin(signals)
  let_run({model = job.model, pk = job.pk, ident = job.ident, base = base, known = known}, changes)
  return true
end

-- The job that spawned the nodes of a flow, given the beginning of its keys; nil if no one did, or its model is not known.
--@rarely
local function spawner_of(text)
  local name, pk = string.match(text or '', '^(%S+):([^:%s]+)$')
  local json = name and redis.call('HGET', FLOWS .. ':classes', name)
  if not json then return nil end
  local model = model_of(json)
  return {model = model, pk = pk, key = hash_key(model, pk), ident = model.path .. ':' .. pk}
end

-- Lets a node go if there is none left that it waits for, once the flow is made, and unless it is canceled. One that was
-- undone is revived, unless another job of its identifier is queued by now.
--@rarely
local function let_run_if_ready(flow, number)
  if not has_none_before(flow, number) then return end
  local state, canceled = unpack(redis.call('HMGET', FLOW .. flow, 'state', 'canceled'))
  if state ~= 'running' or canceled then return end
  local node = node_of(flow, number)
  if not node or not node.base then return end
  local is_free = node.is_undone and not other_queued(node, node.identifier)
  if node.is_parked and node.kind == 'after' or is_free then let_run(node) end
end

-- Cancels a node that waits, because another one failed: not an error, as it could be put back before the other one.
--@rarely
local function undo_node(node, reason)
  probe('ZCARD', node.base .. ':delayed')
  update(node.model, node.pk, {
    status = STATUSES.CANCELED, queued = false, _cancel_reason = reason, _waits = 'undone',
  }, node.known)
  redis.call('ZREM', node.base .. ':delayed', node.ident)
end

-- Leaves something to be done to others, first or last: the caller goes on with it, and if it dies, a worker does.
--@rarely
local function leave_to_do(flow, what, is_first)
  local key = FLOW .. flow .. ':todo'
  if not is_first or redis.call('LINDEX', key, 0) ~= what then redis.call(is_first and 'LPUSH' or 'RPUSH', key, what) end
  redis.call('ZADD', FLOWS .. ':todo', score(now()), flow)
  unfinished_flows = unfinished_flows or {}
  unfinished_flows[#unfinished_flows + 1] = flow
end

-- Cancels all of a flow, in steps, the last nodes first: so none is let go by the end of another one. It comes before all that
-- is left to do, and what was to be put back is not. One that was canceled before is canceled again only if someone asks for
-- it, as jobs of it may have been put back by hand since.
--@rarely
local function cancel_flow(flow, reason, is_asked)
  if redis.call('HSETNX', FLOW .. flow, 'canceled', reason) == 1 or is_asked then
    leave_to_do(flow, string.format('cancel %d', size_of(redis.call('HGET', FLOW .. flow, 'size'))), true)
  end
end

-- Whether a flow, given its state, has not ended, or is about to be put back.
--@rarely
local function may_be_canceled(flow, state)
  return state == 'running' or state == 'held' or state == 'ended' and redis.call('EXISTS', FLOW .. flow .. ':todo') == 1
end

-- Cancels what a job spawned, given its `_spawned`; why, if not because it was canceled; and whether someone asks for it.
--@rarely
local function cancel_spawned(text, reason, is_asked)
  for flow in string.gmatch(text, '"(%x+)"') do
    if may_be_canceled(flow, redis.pcall('HGET', FLOW .. flow, 'state')) then
      cancel_flow(flow, reason or 'the job that spawned it was canceled', is_asked)
    end
  end
end

-- Why a node is canceled that comes after one that ended so.
--@rarely
local function reason_of(flow, ended)
  local text = redis.call('HGET', FLOW .. flow .. ':nodes', ended.number) or ''
  local how = {
    [STATUSES.ERROR] = 'failed', [STATUSES.CANCELED] = 'was canceled', gone = 'was deleted',
    unknown = 'is of a class that no worker knows',
  }
  return (string.match(text, ' (.*)$') or 'node ' .. ended.number) .. ' ' .. (how[ended.status] or 'ended')
end

-- What becomes of a node of which one that it comes after failed.
--@rarely
local function follow_failure(flow, number, ended)
  local node = node_of(flow, number)
  if not node then return end
  local reason = reason_of(flow, ended)
  if node.policy == 'run' then
    redis.call('ZREM', FLOW .. flow .. ':after', number .. ':' .. ended.number)
    let_run_if_ready(flow, number)
    return
  end
  redis.call('ZADD', FLOW .. flow .. ':after', 0, number .. ':' .. ended.number)
  if node.policy == 'cancel' then cancel_flow(flow, reason) end
  if node.is_parked and node.kind == 'after' then undo_node(node, reason) end
end

-- Sorts what follows from some ends: the entries that are gone; the dependents of successes, and of failures; what is
-- left for others to do.
--@rarely
local function sorted_ends(ends, size)
  local gone, after_success, after_failure, left, seen = {}, {}, {}, {}, {}
  for _, ended in ipairs(ends) do
    local numbers, rest = numbers_from(ended.dependents, math.max(MOST_DEPENDENTS - dependents_seen, 0), size)
    for _, number in ipairs(numbers) do
      if ended.status == STATUSES.SUCCESS then
        gone[#gone + 1] = number .. ':' .. ended.number
        if not seen[number] then after_success[#after_success + 1] = number end
      else
        after_failure[#after_failure + 1] = {number, ended}
      end
      if not seen[number] then dependents_seen = dependents_seen + 1 end
      seen[number] = true
    end
    if rest ~= '' then left[#left + 1] = 'end ' .. ended.number .. ' ' .. ended.status .. ' ' .. rest end
  end
  return gone, after_success, after_failure, left
end

-- Whether a flow is the last one of its name.
--@rarely
local function has_name(flow, name)
  return name and redis.call('GET', FLOWS .. ':name:' .. name) == flow
end

-- Sends a command for each key that is kept of a flow after its end.
--@rarely
local function for_each_kept(flow, command, ...)
  for _, part in ipairs({'', ':nodes', ':after', ':failed', ':results', ':signals', ':waiters'}) do
    redis.call(command, FLOW .. flow .. part, ...)
  end
end

-- Lets the keys of a flow expire that has ended.
--@rarely
local function expire_flow(flow, name)
  local key = FLOW .. flow
  local seconds = redis.call('EXISTS', key .. ':failed') == 1 and FAILED_FLOW_KEPT or FLOW_KEPT
  redis.call('ZREM', FLOWS .. ':live', flow)
  redis.call('HDEL', FLOWS .. ':spawners', flow)
  redis.call('ZADD', FLOWS .. ':ended', score(now() + seconds * 1000000), flow)
  redis.call('ZREMRANGEBYSCORE', FLOWS .. ':ended', '-inf', score(now()))
  if has_name(flow, name) then redis.call('EXPIRE', FLOWS .. ':name:' .. name, seconds) end
  for_each_kept(flow, 'EXPIRE', seconds)
end

-- The list of the flows that have a turn, of which one runs at a time.
--@rarely
local function turn_key(turn)
  return FLOWS .. ':turn:' .. turn
end

-- Begins a flow that was held. What ended of it meanwhile is followed then.
--@rarely
local function begin_flow(flow)
  local key = FLOW .. flow
  local heads, size, again = unpack(redis.call('HMGET', key, 'heads', 'size', 'again'))
  redis.call('HSET', key, 'state', 'running')
  redis.call('HDEL', key, 'again')
  if again then  -- before the end of node 0: without anything to do, a flow of which no node is open has ended
    leave_to_do(flow, 'requeue 1')
  elseif redis.call('SCARD', key .. ':open') < size_of(size) then
    leave_to_do(flow, 'tend 1')
  end
  note_end_of_node(flow .. ' 0 run ' .. (heads or ''), STATUSES.SUCCESS)
end

-- Begins the first flow that waits for its turn, unless one runs. Those that have ended, or are gone, are taken out.
--@rarely
local function begin_first(turn)
  while true do
    local flow = redis.call('LINDEX', turn_key(turn), 0)
    local state = flow and redis.pcall('HGET', FLOW .. flow, 'state')
    if state == 'held' then begin_flow(flow) end
    if not flow or state == 'held' or state == 'running' then return end
    redis.call('LPOP', turn_key(turn))
  end
end

--@rarely
local function pass_turn(flow, turn)
  redis.call('LREM', turn_key(turn), 0, flow)
  begin_first(turn)
end

-- A flow that had ended runs again: the next one waits for it, too.
--@rarely
local function take_turn_again(flow, turn)
  local first = redis.call('LINDEX', turn_key(turn), 0)
  if first then
    redis.call('LINSERT', turn_key(turn), 'AFTER', first, flow)
  else
    redis.call('RPUSH', turn_key(turn), flow)
  end
end

-- Notes the end of a flow of which no node is open, and lets its keys expire; or lets the job go on that spawned it, which
-- reads them until its own end: then they stay until a worker finds that it has ended.
--@rarely
local function end_flow(flow)
  local key = FLOW .. flow
  local state, name, text, turn, again, canceled, heads = unpack(redis.call(
    'HMGET', key, 'state', 'name', 'spawner', 'turn', 'again', 'canceled', 'heads'))
  local is_live = state == 'running' or state == 'held' and (canceled or not again)
  if not is_live or redis.call('EXISTS', key .. ':todo') == 1 then return end
  redis.call('HSET', key, 'state', 'ended', 'ended', now_text())
  if state == 'held' then  -- what is put back of it later waits for its turn no more, or anew
    redis.call('HDEL', key, 'again')
    note_end_of_node(flow .. ' 0 run ' .. (heads or ''), STATUSES.SUCCESS)
  end
  local spawner = spawner_of(text)
  if not spawner then expire_flow(flow, name) else place_if_it_waits(spawner, 'children ' .. flow) end
  if turn then pcall(pass_turn, flow, turn) end
end

-- Lets the keys of a flow that had ended live again. It is canceled no more: those that are put back let others go.
--@rarely
local function keep_flow(flow, name, state)
  redis.call('HSET', FLOW .. flow, 'state', state)
  redis.call('HDEL', FLOW .. flow, 'ended', 'canceled')
  redis.call('ZREM', FLOWS .. ':ended', flow)
  redis.call('ZADD', FLOWS .. ':live', score(now()), flow)
  if has_name(flow, name) then redis.call('PERSIST', FLOWS .. ':name:' .. name) end
  for_each_kept(flow, 'PERSIST')
end

-- A node that had ended is queued again; if that was the end of the flow, it goes on.
--@rarely
local function reopen(flow, number)
  local key = FLOW .. flow
  local state, name, turn = unpack(redis.call('HMGET', key, 'state', 'name', 'turn'))
  if not state then return end  -- its time was over
  redis.call('SADD', key .. ':open', number)
  redis.call('HDEL', key .. ':failed', number)
  if state ~= 'ended' then return end
  keep_flow(flow, name, 'running')
  if turn then pcall(take_turn_again, flow, turn) end
end

-- The highest number that may be among what comes after some nodes; nil if there is no such flow. Numbers that are named
-- one by one after a success do no harm: to ask would cost each node a command. Then, what becomes of the others of the flow
-- if one fails, unless they say so themselves.
--@rarely
local function limit_of(flow, ends)
  for _, ended in ipairs(ends) do
    if ended.status ~= STATUSES.SUCCESS or string.find(ended.dependents, '-', 1, true) then
      local size, policy = unpack(redis.call('HMGET', FLOW .. flow, 'size', 'policy'))
      return size and size_of(size), policy
    end
  end
  return MAX_NODES
end

-- What follows from the ends of some nodes of a flow. They are open until the last write, so that all is done again if
-- it fails.
--@rarely
local function follow_in(flow, ends)
  local key, numbers, succeeded, failed = FLOW .. flow, {}, {}, {}
  local size, policy = limit_of(flow, ends)
  if not size then return end  -- its time was over, or another program deleted it
  local gone, after_success, after_failure, left = sorted_ends(ends, size)
  for _, ended in ipairs(ends) do
    if ended.number ~= '0' then numbers[#numbers + 1] = ended.number end
    if ended.status == STATUSES.SUCCESS then
      succeeded[#succeeded + 1] = ended.number
    else
      failed[#failed + 1], failed[#failed + 2] = ended.number, ended.status
    end
  end
  if #failed > 0 then redis.call('HSET', key .. ':failed', unpack(failed)) end
  if #failed > 0 and policy == 'cancel' then cancel_flow(flow, reason_of(flow, {number = failed[1], status = failed[2]})) end
  if #gone > 0 then redis.call('ZREM', key .. ':after', unpack(gone)) end
  for _, number in ipairs(after_success) do let_run_if_ready(flow, number) end
  for _, pair in ipairs(after_failure) do follow_failure(flow, unpack(pair)) end
  for _, what in ipairs(left) do leave_to_do(flow, what) end
  if #numbers > 0 and redis.call('SREM', key .. ':open', unpack(numbers)) < #numbers and #succeeded > 0 then
    redis.call('HDEL', key .. ':failed', unpack(succeeded))  -- one was given up before
  end
  if redis.call('SCARD', key .. ':open') == 0 then end_flow(flow) end
end

-- Follows all ends that are noted, and those that come of them.
--@rarely
local function follow_ends()
  is_following = true
  while ended_nodes do
    local flows, order, nodes = {}, {}, ended_nodes
    ended_nodes = nil
    for _, ended in ipairs(nodes) do
      if not flows[ended.flow] then flows[ended.flow], order[#order + 1] = {}, ended.flow end
      table.insert(flows[ended.flow], ended)
    end
    for _, flow in ipairs(order) do pcall(follow_in, flow, flows[flow]) end
  end
  is_following = false
end

-- Sends all kept commands of a batch, and follows the ends of nodes. The batch goes on.
local function end_batch()
  if batch then
    send_batch()
    if ended_nodes then follow_ends() end
    begin_batch()
  end
end

-- Notes that a node ended; what follows, follows at once, or at the end of the batch.
--@rarely
local function note_end_of_node(text, status)
  local ended = parse_flow(text)
  if not ended then return end
  ended.status = status or 'gone'
  if batch then
    pending_nodes = pending_nodes or {}
    pending_nodes[#pending_nodes + 1] = ended
    return
  end
  ended_nodes = ended_nodes or {}
  ended_nodes[#ended_nodes + 1] = ended
  if not is_following then follow_ends() end
end

-- What follows for its flow if a node is queued again, or no longer.
--@rarely
local function follow_change(model, pk, changes, values)
  if changes.queued == '1' and values.queued ~= '1' then
    local node = parse_flow(values._flow)
    if node then reopen(node.flow, node.number) end
  elseif not changes.queued and values.queued == '1' then
    note_end_of_node(values._flow, changes.status or values.status or redis.call('HGET', hash_key(model, pk), 'status'))
  end
end

-- Keeps what a node returned for those after it.
--@rarely
local function keep_for_flow(text, result)
  local node = parse_flow(text)
  if node then send_if_it_fits('HSET', FLOW .. node.flow .. ':results', node.number, result) end
end
