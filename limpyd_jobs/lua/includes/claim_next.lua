-- Claiming: claims the next job, out of its waiting list.

--@include clock
--@include claims
--@include limits
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
local function arguments_among(hash, first, last)
  local arguments, size = {}, 0
  for i = first, last do
    arguments[i - first + 1] = hash[i]
    size = size + #(hash[i] or '')
  end
  return size <= 65536 and arguments or nil
end

-- The turn of a lane whose key has had its turn in another lane meanwhile; nil if it is its turn.
--@rarely
local function later_turn(base, lane, needs, turn)
  if not string.find(lane, '\n', 1, true) then return nil end
  for _, need in ipairs(needs) do
    local pass = need.rule.fair and tonumber(redis.call('ZSCORE', base .. ':_passes', need.limit))
    if pass and pass > turn then return pass end
  end
end

-- Cancels a job that is about to begin, because of a limit; returns the reply.
--@rarely
local function cancel_for_limit(key, queue, job, reason)
  update(job.model, job.pk, {
    status = STATUSES.CANCELED, queued = false, _cancel_reason = reason, _claim_token = false, _rescues = false,
    _last_claim = false,
  })
  return {
    outcome = 'found', key = key, ident = job.ident, status = STATUSES.CANCELED, identifier = '',
    queue_name = queue.name or '', queue_priority = queue.priority or '', reason = reason,
  }
end

-- What a job needs of its limits, given the values of their fields; and the reply, if it is not to begin now; and why it
-- can never begin, then it needs nothing: it is claimed, and its worker records that. The turn is that of its lane, if it comes
-- out of it.
--@rarely
local function look_at_limits(key, queue, job, values, is_first, turn)
  local base, model = string.sub(key, 1, -9), job.model
  local needs, lane = needs_of(model, base, values)
  local wrong = wrong_weight(needs)
  if wrong then
    return NOTHING, nil, 'its weight for the limit ' .. wrong.rule.name .. ' is not a number of units from 0'
  end
  local limit, moment, need
  if turn and lane ~= queue.lane then  -- its limits are others by now, or its class has others here
    return nil, {outcome = 'limited', key = key, ident = job.ident, lane = lane}
  end
  local later = turn and later_turn(base, lane, needs, turn)
  if later then
    return nil, {outcome = 'limited', key = key, ident = job.ident, lane = lane, turn = later}
  end
  local is_to_be_parked = is_first and (model.limits.fair or queue.lanes and redis.call('EXISTS', lane_key(base, lane)) == 1)
  if not is_to_be_parked or model.limits.drops then limit, moment, need = obstacle_of(needs, base, job.ident, lane) end
  if need and need.above then
    local allowed = string.format('%.12g that its limit %s allows in the time of its rate', need.above, need.rule.name)
    return NOTHING, nil, string.format('its weight of %.12g is above the ', need.weight) .. allowed
  elseif need and need.rule.drops and not need.rests and not has_begun(job) and not was_run_before(job) then
    return nil, cancel_for_limit(key, queue, job, 'its limit ' .. need.rule.name .. ' was reached')
  end
  if limit or is_to_be_parked then
    return nil, {
      outcome = 'limited', key = key, ident = job.ident, lane = lane, limit = limit, moment = moment, need = need,
    }
  end
  return needs
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
--
-- A job that a limit keeps from beginning is left where it is: the outcome is 'limited', with the name of its lane, and the
-- limit, and when to look again. So is one whose lane has others, and one of a class whose lanes take turns, unless it
-- comes out of its lane, whose turn is given: then the limit may be none.
local function claim(key, queue, pk, model, token, lease, is_first, number, turn)
  local base = string.sub(key, 1, -9)
  local job = {model = model, pk = pk, ident = model.path .. ':' .. pk, key = hash_key(model, pk)}
  local hash = redis.call(
    'HMGET', job.key, 'status', 'identifier', 'tries', 'queued', '_job_timeout', '_last_claim', '_rescues',
    'delayed_until', '_retry_policy', '_uncounted_tries', 'added', '_requeued_at', '_retry_for', '_failing_since',
    '_start_within', '_cursor', '_follows', '_flow', unpack(model.read))
  local status, identifier, tries_before, queued, job_timeout, last_claim, rescues, delayed_until, policy, uncounted_tries,
    added, requeued_at, retry_for, failing_since, start_within, cursor, follows, flow = unpack(hash, 1, 18)
  local beside = rescues and suspects_beside(rescues)
  identifier = identifier or ''
  local last_argument = 18 + #(model.arguments or NOTHING)

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
      reason = 'job ' .. followed .. ', of the same identifier, has not ended',
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
  if beside and (is_first or turn) and not allows(beside, number) then
    return {outcome = 'nothing'}
  end
  local needs, limited, never
  if model.limits then
    needs, limited, never = look_at_limits(key, queue, job, {unpack(hash, last_argument + 1)}, is_first, turn)
    if limited then
      if limited.status and is_first then pop(key) end
      return limited
    end
  end
  if beside then suspects, most_suspects = suspects + 1, math.min(most_suspects, beside) end
  local is_among_others = (number or is_concurrent) and beside ~= 1
  token = is_among_others and one_of_several(token, number or 1) or token
  local start, tries = now_text(), string.format('%d', (tonumber(tries_before) or 0) + 1)
  local is_run = not is_only_taken(token)
  local changes = {
    queued = '1', _queue_key = base, _claim_token = token, _last_claim = false, status = is_run and STATUSES.RUNNING or nil,
    start = is_run and start or nil, tries = is_run and tries or nil,
  }
  if followed then
    end_followed(model, followed, pk)
    changes._follows = false
  end
  if needs then changes._slots = text_of_needs(needs) end
  update(model, pk, changes, {status = status, queued = queued, _last_claim = last_claim, _flow = flow})
  if needs then take_needs(needs, job.ident, lease) end
  send('ZADD', base .. ':_running', score(now() + lease * 1000000 - (number or 0)), job.ident)
  if is_first then pop(key) end
  return {
    outcome = 'claimed', key = key, ident = job.ident, token = token, status = status, identifier = identifier,
    queue_name = queue.name or '', queue_priority = queue.priority or '', start = start, tries = tries,
    job_timeout = job_timeout or nil, arguments = model.arguments and arguments_among(hash, 19, last_argument),
    retry = retry_of(policy, uncounted_tries, added, requeued_at, retry_for, failing_since),
    delayed_until = delayed_until or nil, queues = last_queue(base), cursor = cursor and cursor_to_give(cursor) or nil,
    beside = is_among_others and beside or nil, needs = needs, reason = never, flow = flow and '1' or nil,
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
local function claim_safely(key, queue, ident, model, token, lease, is_first, number, turn)
  local _, pk = parse_ident(ident)
  if not turn then forget_deferrals(string.sub(key, 1, -9), ident) end
  model = model_of(model)
  local ok, reply = pcall(claim, key, queue, pk, model, token, lease, is_first, number, turn)
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
