-- verb: requeue many
-- from: error
-- to: waiting or delayed
-- what: as requeue, those of some jobs that meet some conditions; one moment after the other, if they are spread
-- request
--   model, pks, first, last, within, conditions, standing, dry, entry, unaudited
--   queue_model, delay, interval, turns, spread
--   queue_name    none for the queue in which each was last
--   default_name  the queue of a job that does not say in which it was
--   restart       '1' to forget how far each was
--   priority      none for the own one of each
--   told          '1' to answer which were put back
-- reply
--   done   {outcomes: {as in requeue.lua, or 'no queue', 'claimed', 'broken', 'refused by Redis', 'beyond the year 9999':
--          number}, looked: at how many, seen: the last pk; if they are spread, turn: when the first one is due, in
--          microseconds since the epoch, interval; if asked for, pks: of those that are done}

--@include requeueing
--@include each_found
--@include spreading

local queue_model, due = model_of(request.queue_model), due_at(request.delay)
local turn, last
local pks = request.told and {}
if request.interval then turn, last = first_turn(due) end

local function why_not(job, is_claimed, own_name)
  if job.status ~= STATUSES.ERROR then return 'not in error' end
  if is_claimed then return 'claimed' end
  if not (request.queue_name or own_name or request.default_name) then return 'no queue' end
  local identifier = redis.call('HGET', job.key, 'identifier')
  if identifier and other_queued(job, identifier, request.dry) then return 'already queued' end
end

local function requeue(job, own_name)
  local name = request.queue_name or own_name or request.default_name
  if turn then due = turn_at(turn) end
  if turn and not due then return 'beyond the year 9999' end
  local outcome = requeue_job(job, {model = queue_model, name = name, priority = request.priority, due = due, restart = request.restart})
  if pks and outcome == 'done' then pks[#pks + 1] = job.pk end
  if turn and outcome == 'done' then
    turn = turn_after(turn)
    if is_delayed(due) then last = job.key end
  end
  return outcome
end

local reply = turn and {turn = string.format('%.0f', turn), interval = request.interval}
if pks then reply = reply or {}; reply.pks = pks end
if turn and not request.dry then keep_turn(turn, last) end  -- if that fails, nothing is changed
local answered = do_each(why_not, requeue, reply)
if turn and not request.dry then keep_turn(turn, last) end
return answered
