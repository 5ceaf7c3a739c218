-- verb: claim job
-- from: new, waiting, delayed or running
-- to: running
-- what: a given job, wherever it stands: a delayed one if it is due, a running one if its lease lapsed
-- request
--   job_model, ident, token, lease, queue_model
--   queue_name   of a job that stands in no queue, or none
--   registry     see add.lua
-- reply
--   claimed             as in claim.lua; also to the holder of this claim, whose first reply was lost: the lease begins
--                       anew. 'nothing', which the same function can answer, does not occur
--   found               as in claim.lua: it is canceled now, because it is too late to begin it, or delayed, because it
--                       follows another job
--     in all other cases nothing is changed:
--   taken               {token, if it has one; until: the end of the lease, if there is one}: another owner holds it
--   not to be run       {status, delayed_until}
--   already queued      {pk of the queued job of the same identifier}
--   no queue            it stands in no queue, and no name is given
--   other queue model   {queue_key}
--   limited             {limit: its key}: a limit keeps it from beginning
--   gone                also if it is deleted at this moment

--@include claim_next
--@include places
--@include registry

refuse_if_moved(request.registry)
local job, token = job_of(request.job_model, request.ident), checked_token(request.token)
local queue_model, queue_name = model_of(request.queue_model), request.queue_name

local status, identifier, priority, queued, tries, delayed_until, known, holder, rescues = unpack(redis.call(
  'HMGET', job.key, 'status', 'identifier', 'priority', 'queued', 'tries', 'delayed_until', '_queue_key',
  '_claim_token', '_rescues'))
if is_gone(job.model, job.pk, status) then
  return answer('gone')
end
local is_again, is_held = holder == token and status == STATUSES.RUNNING, holder or status == STATUSES.RUNNING

local function lease_end()
  local found = known and redis.pcall('ZSCORE', known .. ':_running', job.ident)
  return type(found) == 'string' and found
end

local function waits()
  local is_due = status == STATUSES.DELAYED and not holder and (parse_date(delayed_until) or 0) <= now()
  return not status or status == STATUSES.WAITING or is_due
end

-- Why the job cannot be claimed, with the details; nil if it can.
local function reason_against()
  local ends = is_held and lease_end()
  if is_held and holder ~= token and not (ends and tonumber(ends) <= now() / 1000000) then
    return 'taken', {token = holder or nil, ['until'] = ends or nil}
  elseif not waits() and status ~= STATUSES.RUNNING then
    return 'not to be run', {status = status, delayed_until = status == STATUSES.DELAYED and delayed_until or nil}
  elseif known and string.sub(known, 1, #queue_model.name + 1) ~= queue_model.name .. ':' then
    return 'other queue model', {queue_key = known}
  end
  local other = queued ~= '1' and identifier and other_queued(job, identifier)
  if other then
    return 'already queued', {pk = other}
  end
end

local queue  -- of the list that was looked at last

-- The limit that keeps the job from beginning; nil if none does. Who holds the claim has what it needs already.
local function limit_against()
  if is_again then
    job.model.limits = nil
    return nil
  end
  local base, fields = queue_model.name .. ':0', job.model.limits.fields  -- the limits are beside all queues
  fields[#fields + 1] = '_slots'
  local needs = needs_of(job.model, base, redis.call('HMGET', job.key, unpack(fields)))
  return (obstacle_of(needs, base, job.ident))
end

-- Mostly it stands where its hash says, near the front, and is quickly found. If it stands there twice, a worker drops
-- the other entry.
local function leave_known_list()
  queue = status == STATUSES.WAITING and known and sound_queue(known)
  return queue and redis.call('LREM', known .. ':waiting', 1, job.ident) == 1 and known
end

-- The queue of a job that stands in no queue: its last one, or the one of the given name; nil if there is none.
local function home()
  if known and sound_queue(known) then
    return known
  end
  return queue_name and queue_model.name .. ':' .. find_or_create_queue(queue_model, queue_name, priority or '0')
    or nil
end

-- A job that does not wait is claimed as if it did.
local function let_it_wait()
  if is_again then
    tries = one_try_less(tries)
  elseif status == STATUSES.RUNNING then
    rescues = lost_once_more(rescues, holder and is_one_of_several(holder) and 1)  -- one: it comes alone from now on
  end
  local changes = {status = STATUSES.WAITING, tries = tries, _rescues = rescues}
  if status == STATUSES.RUNNING then changes._start_within = false end  -- it began in time
  update(job.model, job.pk, changes)
end

if not is_again then
  local obstacle, details = reason_against()
  if obstacle then
    return answer(obstacle, details)
  end
end
local limit = job.model.limits and limit_against()
if limit then
  return answer('limited', {limit = limit})
end
-- Keys that could refuse a change are probed before the job is taken from its place.
for _, prefix in ipairs(job.model.indexes.status) do
  probe('SCARD', prefix .. (status or ''), prefix .. STATUSES.WAITING, prefix .. STATUSES.RUNNING)
end
for _, prefix in ipairs(job.model.indexes.queued) do
  probe('SCARD', prefix .. '1')
end
local base = leave_known_list() or queued == '1' and unplace(queue_model, queue_name or '', job) or home()
if not base then
  return answer('no queue')
end
write_classes(request.registry)
probe('ZCARD', base .. ':_running')
if status ~= STATUSES.WAITING then
  let_it_wait()
end
forget_deferrals(base, job.ident)
queue = base == known and queue or sound_queue(base) or {}
last_queues[base] = ''  -- this caller is not a worker, and does not need it
local claimed = claim(base .. ':waiting', queue, job.pk, job.model, token, tonumber(request.lease), false)
return answer(claimed.outcome, {delivery = delivery(claimed)})
