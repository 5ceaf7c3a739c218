-- Claiming: claims the next job, out of its waiting list.

--@include clock
--@include claims
--@include lists
--@include queues
--@include quarantine

-- What the worker needs to decide whether the job is tried again if it fails: the policy of the job, how many of its
-- tries do not count, and the beginning of its age; then, if there is a limit, for how long it is tried again, and since
-- when it has been failing.
local function retry_of(policy, uncounted_tries, added, requeued_at, retry_for, failing_since)
  local retry = {policy or '', uncounted_tries or '', requeued_at or added or ''}
  if retry_for or failing_since then retry[4], retry[5] = retry_for or '', failing_since or '' end
  return retry
end

-- How far a job was, for its worker: a text that is too long to be a cursor is not sent.
--@rarely
local function cursor_to_give(text)
  return #text <= 65536 and text or 'too long'
end

-- Whether it is too late to begin a job that had to begin within some seconds of its adding, or of the end of its delay.
--@rarely
local function is_too_late(within, added, delayed_until)
  local seconds, since = tonumber(within) or 0, math.max(parse_date(added) or 0, parse_date(delayed_until) or 0)
  return seconds > 0 and since > 0 and now() > since + seconds * 1000000
end

-- The arguments among the values from the first on, which travel with the claim; nil if they are long: then the job
-- reads the ones that it uses.
local function arguments_among(hash, first)
  local arguments, size = {}, 0
  for i = first, #hash do
    arguments[i - first + 1] = hash[i]
    size = size + #(hash[i] or '')
  end
  return size <= 65536 and arguments or nil
end

-- Whether the worker runs several jobs at once, how many suspects it has, and how many it may have at once: see claim.lua.
local is_concurrent, suspects, most_suspects = nil, 0, math.huge

local function know_room(given, running, most)
  is_concurrent, suspects, most_suspects = given, tonumber(running) or 0, tonumber(most) or math.huge
end

-- Whether a suspect may be claimed: a worker has no more of them at once than each allows. The one that may have none beside
-- it comes alone, or, if the worker runs several jobs, first.
--@rarely
local function allows(beside, number)
  if not (number or is_concurrent) then return true end
  return suspects < math.min(beside, most_suspects) and (beside > 1 or (number or 1) == 1)
end

-- Claims a job that was taken from the waiting list of a sound queue, or takes it, if it really waits. The reply is
-- documented in claim.lua. The ident may have an old path of the class; the stored ident has its own path.
--
-- With a number, it is one of several jobs that a worker claims at once: the number is part of the token. A suspect,
-- which may kill its workers, is left in its list unless the worker may have it beside the others that it has. The lease of the last one lapses first: so they are rescued in their order, and Redis finds the place of each without a
-- search.
local function claim(key, queue, pk, model, token, lease, is_first, number)
  local base = string.sub(key, 1, -9)
  local job = {model = model, pk = pk, ident = model.path .. ':' .. pk, key = hash_key(model, pk)}
  local hash = redis.call(
    'HMGET', job.key, 'status', 'identifier', 'tries', 'queued', '_job_timeout', '_last_claim', '_rescues',
    'delayed_until', '_retry_policy', '_uncounted_tries', 'added', '_requeued_at', '_retry_for', '_failing_since',
    '_start_within', '_cursor', '_follows', unpack(model.arguments or NOTHING))
  local status, identifier, tries_before, queued, job_timeout, last_claim, rescues, delayed_until, policy, uncounted_tries,
    added, requeued_at, retry_for, failing_since, start_within, cursor, follows = unpack(hash, 1, 17)
  local beside = rescues and suspects_beside(rescues)
  identifier = identifier or ''

  if not status and redis.call('EXISTS', job.key) == 0 then
    if is_first then pop(key) end
    return {outcome = 'gone', key = key, ident = job.ident}
  end
  if queued ~= '1' then end_batch() end
  local is_second = queued ~= '1' and other_queued(job, identifier)
  if status ~= STATUSES.WAITING or is_second then
    if is_first then pop(key) end
    return {
      outcome = 'found', key = key, ident = job.ident, status = status or '', identifier = identifier,
      queue_name = queue.name or '', queue_priority = queue.priority or '',
    }
  end
  local followed = follows and string.match(follows, '^%S+')
  local ends = followed and end_of_followed(model, followed)
  if ends then
    probe('ZCARD', base .. ':delayed')
    update(model, pk, {status = STATUSES.DELAYED, delayed_until = ends.text, _queue_key = base})
    redis.call('ZADD', base .. ':delayed', score(ends.at), job.ident)
    redis.call('HSET', hash_key(model, followed), '_followed_by', pk)
    if is_first then pop(key) end
    return {
      outcome = 'found', key = key, ident = job.ident, status = STATUSES.DELAYED, identifier = identifier,
      queue_name = queue.name or '', queue_priority = queue.priority or '', delayed_until = ends.text,
      reason = 'job ' .. followed .. ', of the same identifier, was canceled, and has not ended',
    }
  end
  if start_within and (tonumber(tries_before) or 0) == 0 and is_too_late(start_within, added, delayed_until) then
    local reason = 'it had not begun within ' .. start_within .. ' s'
    update(model, pk, {
      status = STATUSES.CANCELED, queued = false, _cancel_reason = reason, _claim_token = false, _rescues = false,
      _last_claim = false,
    })
    if is_first then pop(key) end
    return {
      outcome = 'found', key = key, ident = job.ident, status = STATUSES.CANCELED, identifier = identifier,
      queue_name = queue.name or '', queue_priority = queue.priority or '', reason = reason,
    }
  end
  if beside and is_first and not allows(beside, number) then
    return {outcome = 'nothing'}
  end
  if beside then suspects, most_suspects = suspects + 1, math.min(most_suspects, beside) end
  local is_among_others = (number or is_concurrent) and beside ~= 1
  token = is_among_others and one_of_several(token, number or 1) or token
  local start, tries = now_text(), string.format('%d', (tonumber(tries_before) or 0) + 1)
  local changes = {queued = '1', _queue_key = base, _claim_token = token, _last_claim = false}
  if followed then changes._follows = false end
  if not is_only_taken(token) then
    changes.status, changes.start, changes.tries = STATUSES.RUNNING, start, tries
  end
  update(model, pk, changes, {status = status, queued = queued, _last_claim = last_claim})
  send('ZADD', base .. ':_running', score(now() + lease * 1000000 - (number or 0)), job.ident)
  if is_first then pop(key) end
  return {
    outcome = 'claimed', key = key, ident = job.ident, token = token, status = status, identifier = identifier,
    queue_name = queue.name or '', queue_priority = queue.priority or '', start = start, tries = tries,
    job_timeout = job_timeout or nil, arguments = model.arguments and arguments_among(hash, 18),
    retry = retry_of(policy, uncounted_tries, added, requeued_at, retry_for, failing_since),
    delayed_until = delayed_until or nil, queues = last_queue(base), cursor = cursor and cursor_to_give(cursor) or nil,
    beside = is_among_others and beside or nil,
  }
end

local has_deferrals = {}

local function forget_deferrals(base, ident)
  if has_deferrals[base] == nil then
    has_deferrals[base] = redis.call('EXISTS', base .. ':_deferrals') == 1
  end
  if has_deferrals[base] then
    redis.pcall('HDEL', base .. ':_deferrals', ident)
  end
end

-- Claims a job. If its hash is of a wrong type, the job is put in quarantine. If a key that jobs share is broken, the
-- reply is an error.
local function claim_safely(key, queue, ident, model, token, lease, is_first, number)
  local _, pk = parse_ident(ident)
  forget_deferrals(string.sub(key, 1, -9), ident)
  model = model_of(model)
  local ok, reply = pcall(claim, key, queue, pk, model, token, lease, is_first, number)
  if ok then
    keep_pending()
    return reply
  end
  drop_pending()
  if not is_broken(hash_key(model, pk)) then
    if not is_first then redis.call('LPUSH', key, ident) end
    return {err = text_of_error(reply)}
  end
  if is_first then pop(key) end
  set_aside(string.sub(key, 1, -9), ident)
  return {outcome = 'broken', key = key, ident = ident, status = text_of_error(reply)}
end

-- How many suspects at the beginning of a list a call passes over at most, and how many entries it looks at in one step.
local MAX_PASSED, LOOK = 1000, 50

-- How many it has passed over in each list: while a script runs, they stay there.
local passed = {}

-- Whether a job is no suspect, or one that may be claimed now.
--@rarely
local function may_be_next(model, pk, number)
  local rescues = redis.pcall('HGET', hash_key(model_of(model), pk), '_rescues')
  local beside = type(rescues) == 'string' and suspects_beside(rescues)
  return not beside or allows(beside, number)
end

-- Claims the first job behind the suspects of a list that are passed over; nil if there is none.
--@rarely
local function claim_behind_suspects(key, queue, token, lease, classes, number)
  if popped and popped[key] then end_batch() end
  while passed[key] < MAX_PASSED do
    local idents = redis.call('LRANGE', key, passed[key], passed[key] + LOOK - 1)
    for _, ident in ipairs(idents) do
      local path, pk = parse_ident(ident)
      if path and not classes[path] then
        return {outcome = 'unknown', key = key, ident = ident}
      elseif path and may_be_next(classes[path], pk, number) then
        redis.call('LREM', key, 1, ident)
        return claim_safely(key, queue, ident, classes[path], token, lease, false, number)
      end
      passed[key] = passed[key] + 1
    end
    if #idents < LOOK then return nil end
  end
end

-- Claims the first job of a waiting list; nil if it has none. A key that is not a list counts as empty, as do the lists
-- of broken and of paused queues.
local function claim_from(key, token, lease, classes, number)
  local ident, base = first_of(key), string.sub(key, 1, -9)
  local queue = type(ident) == 'string' and open_queue(base)
  if not queue then
    return nil
  end
  local path = parse_ident(ident)
  if not path then
    pop(key)
    set_aside(base, ident)
    return {outcome = 'garbage', key = key, ident = string.sub(ident, 1, 1000)}
  elseif not classes[path] then
    return {outcome = 'unknown', key = key, ident = ident}
  end
  if passed[key] then
    return claim_behind_suspects(key, queue, token, lease, classes, number)
  end
  local reply = claim_safely(key, queue, ident, classes[path], token, lease, true, number)
  if reply.outcome == 'nothing' and is_concurrent then
    passed[key] = 1
    return claim_behind_suspects(key, queue, token, lease, classes, number)
  end
  return reply
end

-- Claims the next job of another class, if it is among the first hundred of a list, as a key that all jobs of the class
-- of the first one share is broken; nil if there is none. Other entries stay where they are.
--@rarely
local function claim_behind(key, token, lease, classes)
  end_batch()
  local base, idents = string.sub(key, 1, -9), redis.call('LRANGE', key, 0, 99)
  local broken_path = parse_ident(idents[1])
  for _, ident in ipairs(idents) do
    local path = parse_ident(ident)
    if path and path ~= broken_path and not classes[path] then
      return {outcome = 'unknown', key = key, ident = ident}
    elseif path and path ~= broken_path then
      redis.call('LREM', key, 1, ident)
      return claim_safely(key, sound_queue(base), ident, classes[path], token, lease, false)
    end
  end
end

-- Nothing is added to the lists before this one while a script runs: they had no job.
local first_list = 1

-- Claims the first job of the first waiting list that has one. If a key that all jobs of its class share is broken, the
-- next job of another class; the error is the reply only if no list has such a job.
local function claim_first(lists, token, lease, classes, number)
  local failed
  local i = next_filled(lists, first_list)
  while i do
    first_list = i
    local reply = claim_from(lists(i)[i], token, lease, classes, number)
    if reply and reply.err and not number and not is_refused_by_redis(reply) then
      reply = claim_behind(lists(i)[i], token, lease, classes) or reply
    end
    if reply and (not reply.err or is_refused_by_redis(reply)) then
      return reply
    end
    failed = failed or reply
    i = next_filled(lists, i + 1)
  end
  return failed or {outcome = 'nothing'}
end
