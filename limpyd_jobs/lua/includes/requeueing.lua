-- Requeueing: puts a job in error back in a queue.

--@include claims
--@include places

-- Lets a job begin anew: what it had done, got and spawned is forgotten, given its changes; the rest of that is canceled, as no
-- one would read what comes of it.
--@rarely
local function begin_anew(job, changes)
  local spawned = redis.call('HGET', job.key, '_spawned')
  if spawned then cancel_spawned(spawned, 'the job that spawned it begins anew', true) end
  changes._cursor, changes._signals, changes._waits, changes._spawned = false, false, false, false
end

-- `where` is {model: of the queue, name, priority: none for its own, due, custom, restart}. The outcomes and their details are
-- documented in requeue.lua.
local function requeue_job(job, where)
  local status, identifier, own, token, tries, note = unpack(redis.call(
    'HMGET', job.key, 'status', 'identifier', 'priority', '_claim_token', 'tries', '_first_priority'))
  if is_gone(job.model, job.pk) then
    return 'gone'
  elseif status ~= STATUSES.ERROR then
    return 'not in error'
  end

  local other = identifier and other_queued(job, identifier)
  if other then
    return 'already queued', {pk = other}
  end

  -- If a hook of its worker puts the job back, the claim is still held.
  if token then
    unplace(where.model, where.name, job)
  end
  own = own or '0'
  local first = first_priority(note, own)
  local priority = where.priority or not token and first or own
  local changes = {start = false, ['end'] = false, _claim_token = false, _last_claim = false}
  if not token then
    changes._uncounted_tries, changes._requeued_at, changes._first_priority = tries, now_text(), false
    changes._failing_since, changes._start_within = false, false
  elseif first then
    changes._first_priority = note_of_priority(first, priority)
  end
  if where.restart then begin_anew(job, changes) end
  if where.custom then
    update(job.model, job.pk, placed(changes, priority, where.due))
  else
    place(job, where.model, where.name, priority, where.due, false, changes)
  end
  return 'done', {status = changes.status, priority = priority, delayed_until = changes.delayed_until or ''}
end
