-- verb: cancel many
-- from: waiting, delayed or running
-- to: canceled
-- what: as cancel, those of some jobs that meet some conditions
-- request
--   model, pks, first, last, within, conditions, standing, dry, entry, unaudited
--   queue_model
--   default_name  the most likely queue of a job that names none; or none
-- reply
--   done   {outcomes: {as in cancel.lua, or 'broken', 'refused by Redis': number}, looked: at how many, seen: the last pk}

--@include canceling
--@include each_found

local queue_model = model_of(request.queue_model)

local function why_not(job, is_claimed)
  local has_ended = job.status == STATUSES.SUCCESS or job.status == STATUSES.ERROR
  if job.status == STATUSES.CANCELED or not is_claimed and has_ended then return 'ended' end
end

return do_each(why_not, function(job, own_name)
  return cancel_job(job, {model = queue_model, name = own_name or request.default_name, unplace = take_out})
end)
