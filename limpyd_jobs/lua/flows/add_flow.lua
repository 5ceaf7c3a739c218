-- verb: add flow
-- from: new
-- to: waiting or delayed
-- what: the jobs of a flow, all of them, or those of one of several steps: then none is let go before the last step
-- request
--   flow      its id
--   name      none for a flow without one
--   size      of the whole flow
--   jobs      JSON, none if the step only notes what they come after: [number, job model, queue model: their numbers among the models, queue_name, priority, delay,
--             '1' to put it first, identifier, {field: value}, policy, those after it, those before it, the deadline:
--             as a delay, its name in the flow]…
--   models    JSON: those of jobs and queues
--   edges     JSON: [number, those before it]…, as far as this step notes that; else it does so for all its jobs
--   first, last   '1' for the first, the last step
--   heads     those that come after no other one, in the last of several steps, or with a turn
--   turn      a text: of the flows that have the same, one runs at a time; none for any other flow
--   final     those that no other one comes after
--   registry  see add.lua
--   job_model, ident, token   of the job that spawns it, if one does
--   spawn     the name of that spawn
--   policy    'cancel' to cancel the others if one fails
-- reply
--   done             {pks}
--     in all other cases nothing is changed:
--   name taken       {flow}: the id of the flow that runs under that name
--   already queued   {number, pk of the queued job of the same identifier}
--   throttled        {number, pk: of a job of the identifier that ended too short a while ago}
--   not unique       {number, field, value, pk of its owner}
--   dropped          it took too long between two steps
--   refused          another owner holds the claim on the job that spawns it
--   canceled         the job that spawns it was canceled
--   spawned before   {flow: that it made, by a spawn of that name}
--   begun before     {flow: that an earlier run began to make}

--@include adding
--@include idents
--@include registry

refuse_if_moved(request.registry)
local flow, name, models = request.flow, request.name, cjson.decode(request.models)
local key, turn = FLOW .. flow, request.turn
local is_whole = request.first and request.last and not turn
local END_OF_ALL_DATES = {at = 253402300799000000, text = LAST_DATE}

local function named(row)
  local number, model, queue_model, queue_name, priority, delay, prepend, identifier, fields, policy, after, before,
    deadline, own_name = unpack(row)
  return {
    number = number, model = model_of(models[model]), queue_model = queue_model, queue_name = queue_name,
    priority = priority, due = due_at(delay ~= '' and delay or nil), prepend = prepend == '1', identifier = identifier,
    fields = fields, policy = policy, after = after, before = before, name = own_name,
    deadline = due_at(deadline ~= '' and deadline or nil) or END_OF_ALL_DATES,
  }
end

local nodes = {}
for i, row in ipairs(cjson.decode(request.jobs)) do nodes[i] = named(row) end

local function reason_against_flow()
  local other = request.first and name and redis.call('GET', FLOWS .. ':name:' .. name)
  local state = other and redis.call('HGET', FLOW .. other, 'state')
  if state and state ~= 'ended' then return 'name taken', {flow = other} end
  if not request.first and redis.call('HGET', key, 'state') ~= 'building' then return 'dropped', {} end
end

local spawner = request.ident and job_of(request.job_model, request.ident)

-- What a job has spawned, by the names. What is no such text counts as nothing: another program wrote it.
local function spawned_by(text)
  local ok, found = pcall(cjson.decode, text or '{}')
  return ok and type(found) == 'table' and found or {}
end

local function reason_against_spawner()
  if not spawner then return end
  local token, text, status = unpack(redis.call('HMGET', spawner.key, '_claim_token', '_spawned', 'status'))
  if token ~= request.token then return 'refused', {} end
  if status == STATUSES.CANCELED then return 'canceled', {} end
  local found = spawned_by(text)[request.spawn]
  if type(found) ~= 'string' then return end
  local begun = string.match(found, '^making (%x+)$')
  if begun and begun ~= flow and redis.call('EXISTS', FLOW .. begun) == 1 then return 'begun before', {flow = begun} end
  if string.find(found, '^%x+$') then return 'spawned before', {flow = found} end
end

-- Notes in the hash of the job that spawns the flow what it spawned.
local function note_spawned(what)
  local found = spawned_by(redis.call('HGET', spawner.key, '_spawned'))
  found[request.spawn] = what
  update(spawner.model, spawner.pk, {_spawned = cjson.encode(found)})
end

local function reason_against(node)
  local existing = other_queued(node, node.identifier)
  if existing then return 'already queued', {number = node.number, pk = existing} end
  local unique_for = node.fields._unique_for or node.model.defaults._unique_for
  local ended = unique_for and throttled_by(node.model, node.identifier, unique_for)
  if ended then return 'throttled', {number = node.number, pk = ended} end
  local conflict = next(node.model.unique) and not_unique(node.model, node.fields)
  if conflict then
    return 'not unique', {number = node.number, field = conflict.field, value = conflict.value, pk = conflict.pk}
  end
end

local places_of_nodes = {}

-- Where a node stands: of each queue, it is looked for once.
local function place_of(node, due)
  local later = is_delayed(due) and 'later' or ''
  local name_of_place = table.concat({node.queue_model, node.priority, later, node.queue_name}, ' ')
  local known = places_of_nodes[name_of_place]
  if not known then
    known = prepare_place(model_of(models[node.queue_model]), node.queue_name, node.priority, due)
    places_of_nodes[name_of_place] = known
  end
  return known
end

-- When a node is due: one that waits for others at its deadline.
local function due_of(node)
  return (node.before ~= '' or not is_whole) and node.deadline or node.due
end

local function make(node)
  local fields, due, pk = node.fields, due_of(node), new_pk(node.model)
  fields.identifier, fields.added = node.identifier, now_text()
  fields._flow = flow .. ' ' .. node.number .. ' ' .. node.policy .. ' ' .. node.after
  if node.before ~= '' then fields._after = node.before end
  if due == node.deadline then fields._waits = due.text .. '\nafter\n' .. (node.due and node.due.text or '') end
  local base = place_of(node, due)
  create(node.model, pk, placed(fields, node.priority, due, base))
  push(base, node.model.path .. ':' .. pk, fields.status, due, node.prepend)
  return pk
end

-- Adds to a set, a hash or a sorted set, in commands that are not too long.
local function add_all(command, to, words)
  for i = 1, #words, 1000 do redis.call(command, to, unpack(words, i, math.min(i + 999, #words))) end
end

local function note_before(node, before)
  local entries = {}
  for _, number in ipairs((numbers_from(before, math.huge, MAX_NODES))) do
    entries[#entries + 1], entries[#entries + 2] = '0', node .. ':' .. number
  end
  add_all('ZADD', key .. ':after', entries)
end

-- What each node waits for: the first ones of a flow that is not made in one step for its beginning.
local function note_edges()
  for _, node in ipairs(nodes) do
    local is_head = node.before == ''
    if is_head and not is_whole then note_before(node.number, '0') end
    if not is_head and not request.edges then note_before(node.number, node.before) end
  end
  for _, edge in ipairs(cjson.decode(request.edges or '[]')) do note_before(unpack(edge)) end
end

local function note_nodes(pks)
  local of_nodes, numbers = {}, {}
  for i, node in ipairs(nodes) do
    of_nodes[2 * i - 1], of_nodes[2 * i] = node.number, node.model.name .. ':' .. pks[i] .. ' ' .. node.name
    numbers[i] = node.number
  end
  note_edges()
  add_all('HSET', key .. ':nodes', of_nodes)
  add_all('SADD', key .. ':open', numbers)
end

local function note_models()
  local named_models = {}
  for _, json in ipairs(models) do
    named_models[#named_models + 1], named_models[#named_models + 2] = model_of(json).name, json
  end
  if spawner then
    named_models[#named_models + 1], named_models[#named_models + 2] = spawner.model.name, request.job_model
  end
  if named_models[1] then redis.call('HSET', FLOWS .. ':classes', unpack(named_models)) end
end

-- From now on it is there. If a later write fails, it is dropped.
local function begin()
  redis.call('ZADD', FLOWS .. ':building', score(now()), flow)
  if not request.first then return end
  redis.call('HSET', key, 'state', 'building', 'size', request.size, 'added', now_text(), 'final', request.final)
  if spawner then
    local of_spawner = spawner.model.name .. ':' .. spawner.pk
    redis.call('HSET', key, 'spawner', of_spawner, 'policy', request.policy or '')
    redis.call('HSET', FLOWS .. ':spawners', flow, of_spawner)
    if not is_whole then note_spawned('making ' .. flow) end
  end
  if name then
    redis.call('HSET', key, 'name', name)
    redis.call('SET', FLOWS .. ':name:' .. name, flow)
  end
end

-- Leaves to others what came of the ends of nodes for those that were not made yet.
local function follow_early_ends()
  local canceled, size = unpack(redis.call('HMGET', key, 'canceled', 'size'))
  if canceled then
    leave_to_do(flow, 'cancel ' .. size)
  elseif redis.call('SCARD', key .. ':open') < tonumber(size) then
    leave_to_do(flow, 'tend 1')
  end
end

local function commit()
  if turn then
    redis.call('RPUSH', turn_key(turn), flow)
    redis.call('HSET', key, 'turn', turn, 'heads', request.heads)
  end
  redis.call('HSET', key, 'state', turn and 'held' or 'running')
  redis.call('ZADD', FLOWS .. ':live', score(now()), flow)
  redis.call('ZREM', FLOWS .. ':building', flow)
  if spawner then note_spawned(flow) end
  if is_whole then return end
  if turn then begin_first(turn) else note_end_of_node(flow .. ' 0 run ' .. request.heads, STATUSES.SUCCESS) end
  follow_early_ends()
end

-- The pks of the jobs, if this call is sent once more, as the reply was lost.
local function made_before()
  local numbers, pks = {}, {}
  if not nodes[1] then
    local state = request.last and redis.call('HGET', key, 'state')
    return state and state ~= 'building' and state ~= 'dropping' and pks or nil
  end
  for i, node in ipairs(nodes) do numbers[i] = node.number end
  for i, text in ipairs(redis.call('HMGET', key .. ':nodes', unpack(numbers))) do
    if not text then return nil end
    pks[i] = string.match(text, '^%S+:([^:%s]+) ')
  end
  return pks
end

local known_pks = made_before()
if known_pks then return answer('done', {pks = known_pks}) end
local why, details = reason_against_spawner()
if not why then why, details = reason_against_flow() end
for _, node in ipairs(nodes) do
  if not why then why, details = reason_against(node) end
end
if why then return answer(why, details) end
write_classes(request.registry)
begin()
note_models()
local pks = {}
for i, node in ipairs(nodes) do pks[i] = make(node) end
note_nodes(pks)
if request.last then commit() end
return answer('done', {pks = pks})
